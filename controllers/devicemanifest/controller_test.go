package devicemanifest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

var at = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func private(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) string { return dsse.EncodeKey(private(seed).Public().(ed25519.PublicKey)) }

func spec() v1alpha1.DeviceManifestSpec {
	rule := v1alpha1.ManifestRule{Approval: "Required", Tier: "High", Irreversible: true}
	return v1alpha1.DeviceManifestSpec{
		Device: "web1", Privilege: v1alpha1.PrivilegeUser, ExpiresAt: "2027-06-01T00:00:00Z", User: "nisse", Confine: "Required",
		Environment: map[string]string{"HOME": "/home/lucas"},
		Keys:        v1alpha1.ManifestKeys{Request: []string{public(1)}, Approval: []string{public(2)}, Persons: map[string][]string{"lucas": {public(3)}}},
		Paths:       &v1alpha1.ManifestPaths{Read: []v1alpha1.ManifestPathRule{{Glob: "/srv/**", ManifestRule: v1alpha1.ManifestRule{Approval: "None"}}}},
		Commands: []v1alpha1.ManifestCommand{{Argv: []string{"/usr/bin/systemctl", "{verb}", "nginx"}, TimeoutSeconds: 10, ManifestRule: rule,
			Slots: map[string]v1alpha1.ManifestSlot{"verb": {Type: "enum", Values: []string{"restart"}}}}},
		Repositories: []v1alpha1.ManifestRepositoryRule{{Operations: []string{"git.push"}, Glob: "/srv/r", Remotes: []string{"https://git.example.org/*"}, ManifestRule: rule}},
		Packages:     []v1alpha1.ManifestPackageRule{{Operations: []string{"pkg.search"}, Names: []string{"nginx*"}, ManifestRule: rule}},
		Processes:    []v1alpha1.ManifestProcessRule{{Operations: []string{"proc.kill"}, Owner: "Own", Signals: []string{"TERM"}, ManifestRule: rule}},
		Containers:   []v1alpha1.ManifestContainerRule{{Operations: []string{"docker.container.list"}, Names: []string{"*"}, ManifestRule: v1alpha1.ManifestRule{Approval: "None"}}},
		Desktop:      []v1alpha1.ManifestDesktopRule{{Operations: []string{"display.capture"}, ManifestRule: v1alpha1.ManifestRule{Approval: "Required", Signature: "Person"}}},
		Limits:       v1alpha1.ManifestLimits{WriteBytes: 1, OutputBytes: 1, TimeoutSeconds: 60},
	}
}

// sign as the plugin does.
func sign(t *testing.T, s *v1alpha1.DeviceManifestSpec, seed byte, now time.Time) {
	t.Helper()
	s.Epoch = max(s.Epoch, 1)
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.Signature, err = m.Sign(private(seed), now); err != nil {
		t.Fatal(err)
	}
	s.Epoch = m.Epoch
}

type rig struct {
	t     *testing.T
	admin client.Client
	r     *Reconciler
	now   time.Time
	m     *v1alpha1.DeviceManifest
	d     *v1alpha1.Device
}

func newRig(t *testing.T) *rig {
	_, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	r := &rig{t: t, admin: admin, now: at}
	r.r = &Reconciler{Client: admin, Now: func() time.Time { return r.now }}
	r.m = &v1alpha1.DeviceManifest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1-user"}, Spec: spec()}
	r.d = &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:1", PublicKey: public(8), RootKey: public(9)}}
	r.must(admin.Create(t.Context(), r.m))
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// check what a pass says, that it holds together, and that another pass writes nothing.
func (r *rig) check(signed metav1.ConditionStatus, ready metav1.ConditionStatus, reason, message string) ctrl.Result {
	r.t.Helper()
	ctx, key := context.Background(), client.ObjectKeyFromObject(r.m)
	res, err := r.r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	r.must(err)
	r.must(r.admin.Get(ctx, key, r.m))
	for _, v := range condition.Violations(r.m.Generation, r.m.Status.ObservedGeneration, r.m.Status.Conditions) {
		r.t.Error(v)
	}
	c := meta.FindStatusCondition(r.m.Status.Conditions, v1alpha1.ConditionReady)
	if c.Status != ready || c.Reason != reason || !strings.Contains(c.Message, message) {
		r.t.Errorf("Ready %+v, want %s (%s) %q", c, ready, reason, message)
	}
	if c := meta.FindStatusCondition(r.m.Status.Conditions, v1alpha1.ConditionSigned); c.Status != signed {
		r.t.Errorf("Signed %+v, want %s", c, signed)
	}
	version := r.m.ResourceVersion
	_, err = r.r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	r.must(err)
	r.must(r.admin.Get(ctx, key, r.m))
	if r.m.ResourceVersion != version {
		r.t.Error("written again at rest")
	}
	return res
}

func (r *rig) update(o client.Object) {
	r.t.Helper()
	r.must(r.admin.Update(r.t.Context(), o))
}

func TestLifeOfAManifest(t *testing.T) {
	r := newRig(t)
	r.check(metav1.ConditionFalse, metav1.ConditionFalse, v1alpha1.ReasonUnsigned, "kubectl nisse manifest sign")
	sign(t, &r.m.Spec, 9, at)
	r.update(r.m)
	r.check(metav1.ConditionUnknown, metav1.ConditionFalse, v1alpha1.ReasonDeviceNotFound, "web1")
	r.must(r.admin.Create(t.Context(), r.d))
	res := r.check(metav1.ConditionTrue, metav1.ConditionTrue, v1alpha1.ReasonInForce, "")
	if end, _ := time.Parse(time.RFC3339, r.m.Spec.ExpiresAt); res.RequeueAfter != end.Sub(at) {
		t.Errorf("looks again after %s, want at its end", res.RequeueAfter)
	}
	if want := "sha256:"; !strings.HasPrefix(r.m.Status.Digest, want) {
		t.Errorf("digest %q", r.m.Status.Digest)
	}

	r.m.Spec.Limits.WriteBytes++
	r.update(r.m)
	r.check(metav1.ConditionFalse, metav1.ConditionFalse, v1alpha1.ReasonOtherText, "sign it again")
	sign(t, &r.m.Spec, 7, at)
	r.update(r.m)
	r.check(metav1.ConditionFalse, metav1.ConditionFalse, v1alpha1.ReasonOtherKey, "did not sign it")
	sign(t, &r.m.Spec, 9, at)
	r.update(r.m)
	r.check(metav1.ConditionTrue, metav1.ConditionTrue, v1alpha1.ReasonInForce, "")

	r.d.Spec.RevokedEpoch = r.m.Spec.Epoch
	r.update(r.d)
	r.check(metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.ReasonRevoked, "sign it again")
	sign(t, &r.m.Spec, 9, at)
	r.update(r.m)
	r.check(metav1.ConditionTrue, metav1.ConditionTrue, v1alpha1.ReasonInForce, "")

	r.now = time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	r.check(metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.ReasonManifestExpired, "2027-06-01")
}

// The API server takes what the kind's schema cannot see through; the condition tells.
func TestInvalidManifest(t *testing.T) {
	r := newRig(t)
	r.must(r.admin.Create(t.Context(), r.d))
	r.m.Spec.Paths.Write = []v1alpha1.ManifestPathRule{{Glob: "/srv/**", ManifestRule: v1alpha1.ManifestRule{Approval: "None"}}}
	r.m.Spec.Epoch, r.m.Spec.Signature = 1, "{}"
	r.update(r.m)
	r.check(metav1.ConditionFalse, metav1.ConditionFalse, v1alpha1.ReasonInvalidManifest, "always needs approval")
}

func TestShapeIsChecked(t *testing.T) {
	_, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	for name, change := range map[string]func(*v1alpha1.DeviceManifest){
		"another name":           func(m *v1alpha1.DeviceManifest) { m.Name = "mine" },
		"the other privilege":    func(m *v1alpha1.DeviceManifest) { m.Spec.Privilege = v1alpha1.PrivilegeElevated },
		"no privilege":           func(m *v1alpha1.DeviceManifest) { m.Spec.Privilege = "" },
		"a relative glob":        func(m *v1alpha1.DeviceManifest) { m.Spec.Paths.Read[0].Glob = "srv/**" },
		"an unknown operation":   func(m *v1alpha1.DeviceManifest) { m.Spec.Packages[0].Operations = []string{"pkg.remove"} },
		"an expiry in words":     func(m *v1alpha1.DeviceManifest) { m.Spec.ExpiresAt = "next year" },
		"a tier where none is":   func(m *v1alpha1.DeviceManifest) { m.Spec.Paths.Read[0].Tier = "High" },
		"more time than any":     func(m *v1alpha1.DeviceManifest) { m.Spec.Limits.TimeoutSeconds = 301 },
		"a request key in words": func(m *v1alpha1.DeviceManifest) { m.Spec.Keys.Request = []string{"request-key"} },
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.DeviceManifest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1-user"}, Spec: spec()}
			change(m)
			if err := admin.Create(t.Context(), m); err == nil {
				t.Error("was taken")
			}
		})
	}
}

// What the kind says is what the text that is signed says, field by field, so that the two cannot drift apart.
func TestTextHasEveryField(t *testing.T) {
	s := spec()
	sign(t, &s, 9, at)
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := m.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := manifest.Payload(s.Signature)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(signed, canonical) {
		t.Errorf("signed:\n%s\nsaid:\n%s", signed, canonical)
	}
	for _, want := range []string{"user", "confine", "environment", "persons", "commands", "slots", "repositories", "remotes", "packages", "processes", "signals", "containers", "desktop", "irreversible", "signature"} {
		if !bytes.Contains(canonical, []byte(`"`+want+`"`)) {
			t.Errorf("%s is not in the text:\n%s", want, canonical)
		}
	}
}
