package kubectl

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
)

// elevated manifest of web1 as it is now.
func (s *site) elevated() *v1alpha1.DeviceManifest {
	s.t.Helper()
	var m v1alpha1.DeviceManifest
	if err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web1-elevated"}, &m); err != nil {
		s.t.Fatal(err)
	}
	return &m
}

// lasts tells how long a manifest holds from now on, in days, the one that has begun counted.
func lasts(t *testing.T, m *manifest.Manifest) int {
	t.Helper()
	end, err := m.Expiry()
	if err != nil {
		t.Fatal(err)
	}
	return int((time.Until(end) + 23*time.Hour) / (24 * time.Hour))
}

// A machine that is to serve Elevated agents from the start.
func TestEnrollElevated(t *testing.T) {
	s := newSite(t)
	key, public := root(t)
	begin := []string{"web1", "--url", "https://10.8.0.7:7443", "--root-key", key, "--elevated"}
	out := s.enroll("", begin...)
	s.says(out, "devicemanifest/web1-user created, signed", "devicemanifest/web1-elevated created, signed",
		"./nisse-device join web1 --root-key "+public+" --listen 10.8.0.7:7443 --elevated --namespace "+s.ns+"\n")
	d, user, _ := s.now()
	if m := inForce(t, d, user); m.Privilege != manifest.User || m.User != "" {
		t.Errorf("got %+v", m)
	}
	m := inForce(t, d, s.elevated())
	if m.Privilege != manifest.Elevated || m.User != "root" || lasts(t, m) != 90 || m.Keys.Approval[0] != publicKey(2) {
		t.Errorf("got %+v, which lasts %d days", m, lasts(t, m))
	}
	version := s.elevated().ResourceVersion
	again := s.enroll("", begin...)
	s.says(again, "devicemanifest/web1-elevated unchanged", "nothing was changed", " --elevated ")
	// Whoever brings the key need not say it once more.
	s.enroll("", "web1", "--device-key", publicKey(7))
	if now := s.elevated().ResourceVersion; now != version {
		t.Errorf("something was written: %s, %s", version, now)
	}
}

// A machine that is enrolled already is given an Elevated manifest by asking for just that; its User manifest, taken away on purpose, stays away.
func TestEnrollElevatedLater(t *testing.T) {
	s := newSite(t)
	key, public := root(t)
	s.enroll("", "web1", "--url", "https://10.8.0.7:7443", "--root-key", key, "--device-key", publicKey(7))
	_, user, _ := s.now()
	if err := s.api.Delete(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	out := s.enroll("", "web1", "--elevated", "--elevated-days", "7", "--elevated-user", "deploy", "--root-key", key)
	s.says(out, "devicemanifest/web1-elevated created, signed", "If it was joined without --elevated", "    nisse-device join web1 --root-key "+public+" --listen 10.8.0.7:7443 --elevated --namespace "+s.ns+"\n",
		"It is enrolled")
	if strings.Contains(out, "web1-user") {
		t.Errorf("it is about the User manifest too:\n%s", out)
	}
	var d v1alpha1.Device
	if err := s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web1"}, &d); err != nil {
		t.Fatal(err)
	}
	if m := inForce(t, &d, s.elevated()); m.User != "deploy" || lasts(t, m) != 7 {
		t.Errorf("got %+v", m)
	}
	if again := s.enroll("", "web1", "--elevated"); strings.Contains(again, "join") {
		t.Errorf("it tells what was told:\n%s", again)
	}

	// Without the private half it is for somebody else to sign.
	if err := s.api.Delete(t.Context(), s.elevated()); err != nil {
		t.Fatal(err)
	}
	s.says(s.enroll("", "web1", "--elevated"), "web1-elevated created, unsigned", "get devicemanifest web1-elevated -o yaml | kubectl nisse manifest sign")
}

func TestEnrollElevatedRefuses(t *testing.T) {
	s := newSite(t)
	key, _ := root(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"longer than a quarter":     {[]string{"--elevated", "--elevated-days", "91"}, "1 to 90"},
		"no time at all":            {[]string{"--elevated", "--elevated-days", "0"}, "1 to 90"},
		"days of nothing":           {[]string{"--elevated-days", "30"}, "say --elevated too"},
		"a user of nothing":         {[]string{"--elevated-user", "deploy"}, "say --elevated too"},
		"nobody":                    {[]string{"--elevated", "--elevated-user", ""}, "name an account"},
		"what is not an account":    {[]string{"--elevated", "--elevated-user", "Root!"}, "user"},
		"what the API would refuse": {[]string{"--elevated", "--elevated-user", "a b"}, "user"},
	} {
		t.Run(name, func(t *testing.T) {
			s.enroll(c.want, append([]string{"web1", "--url", "https://10.8.0.7:7443", "--root-key", key}, c.args...)...)
		})
	}
	var l v1alpha1.DeviceManifestList
	if err := s.api.List(t.Context(), &l, client.InNamespace(s.ns)); err != nil {
		t.Fatal(err)
	}
	for _, m := range l.Items {
		if m.Spec.Privilege == v1alpha1.PrivilegeElevated {
			t.Errorf("%s was made", m.Name)
		}
	}
}
