package broker

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
)

// A step whose rule demands a person's own signature goes to the real device with it, and without one it goes nowhere: no job, no file.
func TestStepsThatDemandASignature(t *testing.T) {
	r := newRig(t, options{})
	own := newKey(t)
	r.sign(func(m *v1alpha1.DeviceManifestSpec) {
		m.Keys.Persons = map[string][]string{"lucas": {dsse.EncodeKey(public(own))}}
		m.Paths.Write[0].Signature = "Person"
	})
	unsigned := r.submit("c1", "a")
	r.approve(unsigned)
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Refused, "NeedsSignature")
	if jobs := r.jobs(); len(jobs) != 0 {
		t.Errorf("%d jobs", len(jobs))
	}

	p := r.submit("c3", "b")
	g := r.gate(p)
	statement := r.statement(g, p, r.approver)
	s, err := approval.Verify(statement, []ed25519.PublicKey{public(r.approver)})
	must(t, err)
	signature, err := s.Consent("lucas", time.Now().Add(time.Minute).Unix()).Sign(own)
	must(t, err)
	r.status(g, func() {
		g.Status.Outcome, g.Status.Statement = v1alpha1.GateApproved, statement
		g.Status.Decisions = []v1alpha1.GateDecision{{Approval: "a", Person: "lucas", Decision: v1alpha1.DecisionApprove, Channel: v1alpha1.ChannelKubernetes, At: metav1.Now(), Signature: signature}}
	})
	r.want(r.do("c4", "fs_write", writeArgs("b", "x")), doors.Done, "")
	for name, want := range map[string]string{"a": "", "b": "x"} {
		if b, _ := os.ReadFile(filepath.Join(r.root, name)); string(b) != want {
			t.Errorf("file %s holds %q, want %q", name, b, want)
		}
	}
}
