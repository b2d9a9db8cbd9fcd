package kubectl

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/apitest"
)

// person is a key that keygen made, by the file it lies in.
func person(t *testing.T, name string) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name+".key")
	out, _, err := run(t, "", "keygen", "--out", file, "--person", name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := privateKey(file)
	if err != nil {
		t.Fatal(err)
	}
	public = dsse.EncodeKey(key.Public().(ed25519.PublicKey))
	if out != "keys:\n  persons:\n    "+name+": [\""+public+"\"]\n" {
		t.Errorf("it prints %q", out)
	}
	return file, public
}

func TestApprove(t *testing.T) {
	cfg, _ := apitest.Start(t)
	b := controllertest.New(t, nil)
	file := kubeconfig(t, cfg, b.Item.Namespace)
	own, public := person(t, "lucas")
	other, _ := person(t, "eve")
	p := b.Plan(1, controllertest.Report)
	rule := manifest.Rule{Approval: manifest.Required, Signature: manifest.PersonSignature}
	b.Read(b.Item)
	g, err := opening.Plan(p, b.Item, b.Agent, []opening.Step{{Rule: rule, Persons: map[string][]string{"lucas": {public}}}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b.Create(g)
	bent := g.DeepCopy() // it asks about something else than its plan says
	bent.ObjectMeta = metav1.ObjectMeta{Namespace: g.Namespace, Name: "bent"}
	bent.Spec.Digest = "sha256:" + strings.Repeat("e", 64)
	b.Create(bent)
	b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
	halt := b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, time.Now())
	approve := func(stdin string, args ...string) (string, error) {
		out, _, err := run(t, stdin, append([]string{"approve", "--kubeconfig", file, "--wait", "0"}, args...)...)
		return out, err
	}
	count := func() []v1alpha1.Approval { return listed(t, b.Admin, g.Namespace) }
	for says, args := range map[string][]string{
		"there is no Gate none":             {"none", "--key", own, "--yes"},
		"answer it in the room":             {halt.Name, "--yes"},
		"something else than plan":          {"bent", "--key", own, "--yes"},
		"takes the own signature of lucas:": {g.Name, "--yes"},
		"is not one that gate":              {g.Name, "--key", other, "--yes"},
		"no such file":                      {g.Name, "--key", own + "x", "--yes"},
		"nothing was approved":              {g.Name, "--key", own},
	} {
		if out, err := approve("y\n", args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v; want %q", args, out, err, says)
		}
	}
	if made := count(); len(made) != 0 {
		t.Fatalf("%d approvals", len(made))
	}

	// What is shown comes from the plan, and what is signed is what is shown.
	out, err := approve("yes\n", g.Name, "--key", own)
	if err != nil {
		t.Fatalf("%q, %v", out, err)
	}
	for _, part := range []string{"1. web1 · fs.write\n", `path = "/srv/`, "digest " + g.Spec.Digest, "to be signed by lucas with key " + public, "Approve this? Type yes: "} {
		if !strings.Contains(out, part) {
			t.Errorf("it does not show %q:\n%s", part, out)
		}
	}
	made := count()
	if len(made) != 1 {
		t.Fatalf("%d approvals", len(made))
	}
	a := made[0]
	c, err := subject.Consent(g, p, "lucas", a.Spec.Signature)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.Unix(c.ExpiresAt, 0)); left < 59*time.Minute || left > time.Hour {
		t.Errorf("it is good for %s", left)
	}
	a.Spec.Approver = "lucas" // the test's own user is nobody's
	people := []v1alpha1.Person{{ObjectMeta: metav1.ObjectMeta{Name: "lucas"}, Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Kubernetes: []string{"lucas"}}}}}
	if _, reason, message := policy.Judge(policy.Input{Gate: g, Plan: p, Approval: &a, Agent: b.Agent, People: people}); reason != "" {
		t.Errorf("it does not count: %s, %s", reason, message)
	}
	if _, err := os.ReadFile(own); err != nil || strings.Contains(out, "PRIVATE KEY") {
		t.Errorf("the key left the machine, or is gone: %v", err)
	}
}

// A gate that takes no signature is approved without one, and the manager's word is waited for.
func TestApproveWithoutASignature(t *testing.T) {
	cfg, _ := apitest.Start(t)
	b := controllertest.New(t, nil)
	file := kubeconfig(t, cfg, b.Item.Namespace)
	own, _ := person(t, "lucas")
	g := b.Gate(b.Plan(1, controllertest.Report), time.Now())
	admin := watching(t, cfg)
	judged := next(t, admin, g.Namespace, func(a *v1alpha1.Approval) {
		b.Status(g, func() {
			g.Status.Outcome, g.Status.Message = v1alpha1.GateApproved, "rev-1 was approved."
			g.Status.Decisions = []v1alpha1.GateDecision{{Approval: a.Name, Person: "lucas", Decision: a.Spec.Decision, Channel: a.Spec.Channel.Kind, At: a.CreationTimestamp}}
		})
	})
	out, _, err := run(t, "", "approve", "--kubeconfig", file, g.Name, "--key", own, "--yes")
	if err != nil || !strings.Contains(out, "takes no signature") || !strings.HasSuffix(out, "rev-1 was approved.\n") {
		t.Errorf("%q, %v", out, err)
	}
	<-judged
	if made := listed(t, b.Admin, g.Namespace); len(made) != 1 || made[0].Spec.Signature != "" {
		t.Errorf("made %+v", made)
	}
	if _, _, err := run(t, "", "approve", "--kubeconfig", file, g.Name, "--yes"); err == nil || !strings.Contains(err.Error(), "is decided: rev-1 was approved.") {
		t.Errorf("a decided gate: %v", err)
	}
}
