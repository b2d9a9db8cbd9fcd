package story

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/stack"
)

// What demands a person's own signature waits for it: no word in the room lets it run, and nobody who has every key of the cluster does.
// kubectl with the person's key does, once.
func TestAPersonsOwnSignature(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	key := filepath.Join(t.TempDir(), "lucas.key")
	printed, err := s.Kubectl("keygen", "--out", key, "--person", "lucas")
	if err != nil {
		t.Fatal(err)
	}
	public := strings.Split(printed, `"`)[1]
	m := s.Allow(true, func(m *api.DeviceManifestSpec) {
		m.Keys.Persons = map[string][]string{"lucas": {public}}
		m.Paths.Write[0].Signature = string(manifest.PersonSignature)
		m.Paths.Write[0].Irreversible = true
	})
	s.Say(`Put "hello" into ` + s.Files + "/note.txt")
	g := s.OpenGate(api.GateCall, 1)
	s.Hear("nisse-gates", `(?s)Call rev-1 of ops.*Approving takes the own signature of lucas.*kubectl nisse approve `+g.Name+` -n `+s.Namespace+` --key`)
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `Nothing was approved: rev-1 for .* takes the own signature of a person`)
	if out, err := s.Kubectl("approve", g.Name, "--yes"); err == nil || !strings.Contains(err.Error(), "--key") {
		t.Errorf("without the key: %q, %v", out, err)
	}

	// The thief: he has the manager's key and the broker's, and asks the machine itself, by their statement and their request.
	text, err := m.Spec.Text()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := manifest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := signed.Digest()
	if err != nil {
		t.Fatal(err)
	}
	c := approval.Call{Device: stack.Device, ManifestDigest: digest, Capability: manifest.FSWrite, Args: `{"content":"hello","path":"` + s.Files + `/note.txt"}`}
	statement := approval.Statement{GateUID: "stolen", Digest: g.Spec.Digest, Approvers: []string{"lucas"}, ExpiresAt: time.Now().Add(time.Hour).Unix(), Calls: []string{c.Hash()}, Attempts: []int32{1}}
	stated, err := statement.Sign(s.Key("approval"))
	if err != nil {
		t.Fatal(err)
	}
	forged, err := statement.Consent("lucas", statement.ExpiresAt).Sign(s.Key("approval"))
	if err != nil {
		t.Fatal(err)
	}
	var d api.Device
	if err := s.Admin.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: stack.Device}, &d); err != nil {
		t.Fatal(err)
	}
	target, err := devices.TargetOf(&d)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	answer, err := devices.NewClient(s.Key("request"), time.Now).Call(t.Context(), target, wire.Request{V: wire.Version, Device: c.Device, ManifestDigest: digest, Capability: c.Capability, Args: c.Args,
		Deed: deed.Approved("stolen", 1, 1), At: now.Unix(), ExpiresAt: now.Add(time.Minute).Unix(), CorrelationID: "stolen", Agent: "ops",
		Approved: &wire.Approved{GateUID: "stolen", Step: 1, Attempt: 1, Statement: stated, Signature: forged}})
	if err != nil || answer.State != wire.Refused || answer.Reason != wire.NeedsSignature {
		t.Errorf("the machine answers the thief: %+v, %v", answer, err)
	}
	if _, err := s.File("note.txt"); !os.IsNotExist(err) {
		t.Fatalf("something ran before it was signed: %v", err)
	}

	out, err := s.Kubectl("approve", g.Name, "--key", key, "--yes")
	if err != nil || !strings.Contains(out, "note.txt") || !strings.Contains(out, "to be signed by lucas") {
		t.Fatalf("%q, %v", out, err)
	}
	s.Closed(api.ResultDone)
	s.Outcome(g, api.GateApproved)
	if text, err := s.File("note.txt"); err != nil || text != "hello" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
}
