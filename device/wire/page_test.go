package wire

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
)

// TestProtocolPage compares the example of docs/device-protocol.md with what the code makes: whoever writes another client can start
// from those bytes.
func TestProtocolPage(t *testing.T) {
	key := func(seed byte) ed25519.PrivateKey {
		return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	}
	public := func(seed byte) string { return dsse.EncodeKey(key(seed).Public().(ed25519.PublicKey)) }
	call := approval.Call{Device: "web1", ManifestDigest: "sha256:" + strings.Repeat("0", 64), Capability: "fs.write", Args: `{"content":"hello\n","path":"/srv/nisse/a.txt"}`}
	const gate = "0b5e2c1e-8f0a-4a55-9d7e-2f6d3a1c9b10"
	statement, err := approval.Statement{GateUID: gate, Digest: "sha256:" + strings.Repeat("1", 64), Approvers: []string{"lucas"}, ExpiresAt: 1800000600,
		Calls: []string{call.Hash()}, Attempts: []int32{1}}.Sign(key(2))
	if err != nil {
		t.Fatal(err)
	}
	id := deed.Approved(gate, 1, 1)
	request, err := SignRequest(key(1), Request{Device: call.Device, ManifestDigest: call.ManifestDigest, Capability: call.Capability, Args: call.Args, Deed: id,
		At: 1800000000, ExpiresAt: 1800000600, CorrelationID: "wi-01", Agent: "ops", Approved: &Approved{GateUID: gate, Step: 1, Attempt: 1, Statement: statement}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := SignAnswer(key(3), Answer{Device: "web1", Deed: id, CallHash: call.Hash(), State: NotSeen, Now: 1800000601})
	if err != nil {
		t.Fatal(err)
	}
	note, reply := sealed(t, key(3))
	page, err := os.ReadFile("../../docs/device-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"request key   " + public(1), "approval key  " + public(2), "device key    " + public(3),
		"call hash     " + call.Hash(), "deed          " + id,
		statement, string(request), string(answer),
		strings.NewReplacer("\n\n", "\n\n    ", "\n", "\n    ").Replace(strings.TrimSuffix(note, "\n")), string(reply),
	} {
		if !strings.Contains(string(page), "    "+line+"\n") {
			t.Errorf("docs/device-protocol.md lacks the line\n    %s", line)
		}
	}
}

// sealed is the checkpoint of three rows, whose hashes are 11…, 22… and 33…, and the reply to somebody who has kept the one of one row.
func sealed(t *testing.T, key ed25519.PrivateKey) (note string, reply []byte) {
	t.Helper()
	var tree checkpoint.Tree
	var leaves []tlog.Hash
	var kept checkpoint.Checkpoint
	for _, digit := range []string{"1", "2", "3"} {
		leaf, err := checkpoint.Leaf(strings.Repeat(digit, 64))
		if err != nil {
			t.Fatal(err)
		}
		tree.Add(leaf)
		leaves = append(leaves, leaf)
		if len(leaves) == 1 {
			kept = tree.Now()
		}
	}
	note, err := tree.Now().Sign("web1", key)
	if err != nil {
		t.Fatal(err)
	}
	r := checkpoint.Reply{Device: "web1", Nonce: "n", Since: 1, Known: kept.Root.String(), Checkpoint: note, Proof: []string{leaves[1].String(), leaves[2].String()}, Now: 1800000000}
	if reply, err = r.Sign(key); err != nil {
		t.Fatal(err)
	}
	o, err := OpenCheckpoint(reply, key.Public().(ed25519.PublicKey), Query{Device: "web1", Nonce: "n"})
	if err == nil {
		err = checkpoint.Judge(kept, o)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := OpenCheckpoint(reply, key.Public().(ed25519.PublicKey), Query{Device: "web1", Nonce: "m"}); !errors.Is(err, ErrMismatch) {
		t.Errorf("another's reply was taken: %v", err)
	}
	return note, reply
}
