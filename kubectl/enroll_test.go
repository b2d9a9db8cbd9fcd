package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/apitest"
)

// site is a cluster in which Nisse is installed.
type site struct {
	t          *testing.T
	api        client.Client
	ns, system string
	args       []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg, admin := apitest.Start(t)
	s := &site{t: t, api: admin, ns: apitest.Namespace(t, admin), system: apitest.Namespace(t, admin)}
	s.args = []string{"--kubeconfig", kubeconfig(t, cfg, s.ns), "--system-namespace", s.system}
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.system, Name: "nisse-public-keys"}, Data: map[string]string{"request": publicKey(1), "approval": publicKey(2)}})
	return s
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	if err := s.api.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// enroll and return what it says; want is in the error, when there is to be one.
func (s *site) enroll(want string, args ...string) string {
	s.t.Helper()
	out, _, err := run(s.t, "", append(append([]string{"enroll"}, args...), s.args...)...)
	if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
		s.t.Fatalf("%q: got %v, want an error about %q", args, err, want)
	}
	return out
}

func (s *site) says(out string, all ...string) {
	s.t.Helper()
	for _, want := range all {
		if !strings.Contains(out, want) {
			s.t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// now are the objects, and their versions, by which a write shows.
func (s *site) now() (*v1alpha1.Device, *v1alpha1.DeviceManifest, string) {
	s.t.Helper()
	var d v1alpha1.Device
	var m v1alpha1.DeviceManifest
	for name, o := range map[string]client.Object{"web1": &d, "web1-user": &m} {
		if err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o); err != nil {
			s.t.Fatal(err)
		}
	}
	return &d, &m, d.ResourceVersion + " " + m.ResourceVersion
}

func inForce(t *testing.T, d *v1alpha1.Device, m *v1alpha1.DeviceManifest) *manifest.Manifest {
	t.Helper()
	text, err := m.Spec.Text()
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifest.Kept{Text: text, Signature: m.Spec.Signature, RootKey: d.Spec.RootKey}.InForce(time.Now())
	if err != nil {
		t.Fatalf("the manifest is not in force: %v", err)
	}
	return got
}

func TestEnroll(t *testing.T) {
	s := newSite(t)
	key, public := root(t)
	begin := []string{"web1", "--url", "https://10.8.0.7:7443", "--root-key", key}
	out := s.enroll("", begin...)
	s.says(out, "device/web1 created", "devicemanifest/web1-user created, signed", "./nisse-device join web1 --root-key "+public+" --listen 10.8.0.7:7443 --namespace "+s.ns+"\n",
		"kubectl nisse enroll web1 -n "+s.ns+" --device-key KEY")
	d, m, version := s.now()
	if d.Spec != (v1alpha1.DeviceSpec{URL: "https://10.8.0.7:7443", RootKey: public}) {
		t.Errorf("got %+v", d.Spec)
	}
	if got := inForce(t, d, m); got.Device != "web1" || got.Privilege != manifest.User || got.Keys.Request[0] != publicKey(1) || got.Keys.Approval[0] != publicKey(2) {
		t.Errorf("got %+v", got)
	}

	again := s.enroll("", begin...)
	s.says(again, "device/web1 unchanged", "devicemanifest/web1-user unchanged", "nothing was changed", "nisse-device join")
	s.enroll("", "web1")
	if _, _, now := s.now(); now != version {
		t.Errorf("something was written: %s, %s", version, now)
	}

	out = s.enroll("", "web1", "--device-key", publicKey(7))
	s.says(out, "device/web1 knows its machine's key", "It is enrolled")
	if strings.Contains(out, "join") {
		t.Errorf("it still says what to run there: %s", out)
	}
	d, _, version = s.now()
	if d.Spec.PublicKey != publicKey(7) {
		t.Errorf("got %+v", d.Spec)
	}
	s.says(s.enroll("", append(begin, "--device-key", publicKey(7))...), "nothing was changed")
	if _, _, now := s.now(); now != version {
		t.Errorf("something was written: %s, %s", version, now)
	}

	// What is there is never replaced, and somebody who wants that is told how.
	other, _ := root(t)
	for _, args := range [][]string{
		{"web1", "--device-key", publicKey(8)},
		{"web1", "--url", "https://10.8.0.8:7443", "--root-key", key},
		{"web1", "--url", "https://10.8.0.7:7443", "--root-key", other},
	} {
		s.enroll("kubectl -n "+s.ns+" patch device web1", args...)
	}
	if _, _, now := s.now(); now != version {
		t.Errorf("something was written: %s, %s", version, now)
	}
	// Nor comes back what was taken away.
	if err := s.api.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s.says(s.enroll("", "web1", "--device-key", publicKey(7)), "nothing was changed")
}

// The root key may be anywhere.
func TestEnrollByEachRootKey(t *testing.T) {
	s := newSite(t)
	key, public := root(t)
	file := filepath.Join(t.TempDir(), "root.pub")
	pem, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("rootKey: "+public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.enroll("rootKey.inCluster", "web1", "--url", "https://10.8.0.7:7443", "--root-key-secret")
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.system, Name: "nisse-root-key"}, Data: map[string][]byte{"key.pem": pem}})
	for name, c := range map[string]struct {
		args   []string
		signed bool
	}{
		"the private half in a file":   {[]string{"--root-key", key}, true},
		"the Secret":                   {[]string{"--root-key-secret"}, true},
		"the public half":              {[]string{"--root-public-key", public}, false},
		"the public half, in a file":   {[]string{"--root-public-key", file}, false},
		"the machine was joined first": {[]string{"--root-key", key, "--device-key", publicKey(7)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			out := s.enroll("", append([]string{"web1", "--url", "https://web1.mesh:7443"}, c.args...)...)
			d, m, _ := s.now()
			if d.Spec.RootKey != public {
				t.Errorf("got %+v", d.Spec)
			}
			if c.signed {
				inForce(t, d, m)
			} else {
				s.says(out, "web1-user created, unsigned", "kubectl nisse manifest sign")
				if m.Spec.Signature != "" {
					t.Error("it is signed")
				}
			}
			for _, o := range []client.Object{d, m} {
				if err := s.api.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestEnrollRefuses(t *testing.T) {
	s := newSite(t)
	key, public := root(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no name for a device":      {[]string{"Web_1", "--url", "https://10.8.0.7:7443", "--root-key", key}, "lower-case letters"},
		"no such device":            {[]string{"web1"}, "name --url"},
		"no root key":               {[]string{"web1", "--url", "https://10.8.0.7:7443"}, "--root-key"},
		"plain HTTP":                {[]string{"web1", "--url", "http://10.8.0.7:7443", "--root-key", key}, "https://"},
		"no port":                   {[]string{"web1", "--url", "https://10.8.0.7", "--root-key", key}, "address and port"},
		"a path":                    {[]string{"web1", "--url", "https://10.8.0.7:7443/x", "--root-key", key}, "nothing may follow"},
		"a user":                    {[]string{"web1", "--url", "https://me@10.8.0.7:7443", "--root-key", key}, "https://10.8.0.7:7443"},
		"no key of a machine":       {[]string{"web1", "--device-key", "AAAA"}, "nisse-device join prints"},
		"no key and no file":        {[]string{"web1", "--url", "https://10.8.0.7:7443", "--root-public-key", "nothing"}, "neither a key nor a file"},
		"two root keys":             {[]string{"web1", "--url", "https://10.8.0.7:7443", "--root-key", key, "--root-public-key", public}, "none of the others"},
		"a private key as a public": {[]string{"web1", "--url", "https://10.8.0.7:7443", "--root-public-key", key}, "root-public-key"},
	} {
		t.Run(name, func(t *testing.T) { s.enroll(c.want, c.args...) })
	}
	var l v1alpha1.DeviceList
	if err := s.api.List(t.Context(), &l, client.InNamespace(s.ns)); err != nil || len(l.Items) != 0 {
		t.Errorf("%d devices, %v", len(l.Items), err)
	}
	// Where Nisse is not installed there are no keys to trust.
	s.args = append(s.args, "--system-namespace", "elsewhere")
	s.enroll("is Nisse installed", "web1", "--url", "https://10.8.0.7:7443", "--root-key", key)
}
