package kubectl

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

// An order names what was kept and found, is signed by the key that the device has pinned, and is told apart from a fault.
func TestAuditReanchor(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns, system := apitest.Namespace(t, admin), apitest.Namespace(t, admin)
	key, root := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keyFile := func(k ed25519.PrivateKey) string {
		pem, err := dsse.EncodePrivateKey(k)
		must(err)
		file := filepath.Join(t.TempDir(), "root.key")
		must(os.WriteFile(file, pem, 0o600))
		return file
	}
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7443", PublicKey: publicKey(1), RootKey: publicKey(2)}}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.Audit(ns, "web1")}, Data: kept(t, key, rowsOf(t, 8, 8, ""), 4, 8)}
	must(admin.Create(t.Context(), d))
	must(admin.Create(t.Context(), m))
	do := func(stdin string, args ...string) (string, error) {
		out, _, err := run(t, stdin, append([]string{"audit"}, append(args, "--kubeconfig", kubeconfig(t, cfg, ns), "--system-namespace", system)...)...)
		return out, err
	}
	if _, err := do("", "reanchor", "web1", "--key", keyFile(root), "--wait", "0"); err == nil || !strings.Contains(err.Error(), "nothing wrong") {
		t.Errorf("of an audit in order: %v", err)
	}
	broken, err := json.Marshal(checkpoint.Broken{Finding: checkpoint.Finding{Trouble: checkpoint.Truncated, Row: 6}})
	must(err)
	m.Data[checkpoint.KeyBroken] = string(broken)
	must(admin.Update(t.Context(), m))
	if _, err := do("", "reanchor", "web1", "--key", keyFile(key), "--wait", "0"); err == nil || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("by another key: %v", err)
	}
	if _, err := do("", "reanchor", "web1", "--key", keyFile(root), "--wait", "0", "--reason", strings.Repeat("x", 400)); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("a long reason: %v", err)
	}
	must(admin.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	if d.Spec.AuditAnchor != "" {
		t.Fatal("something was ordered")
	}
	out, err := do("", "reanchor", "web1", "--key", keyFile(root), "--reason", "disk restored", "--wait", "100ms")
	if err == nil || !strings.Contains(err.Error(), "has not begun") || !strings.Contains(out, "after 8 rows of line 0 (Truncated at row 6)") {
		t.Errorf("nobody obeyed: %q, %v", out, err)
	}
	must(admin.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	a, err := checkpoint.OpenAnchor(d.Spec.AuditAnchor, "web1", root.Public().(ed25519.PublicKey))
	must(err)
	_, last, err := checkpoint.ReadEntry(m.Data, checkpoint.Key(8))
	must(err)
	if a.Kept() != last || a.Trouble != checkpoint.Truncated || a.Row != 6 || a.Reason != "disk restored" || a.Line < 1_700_000_000 {
		t.Errorf("ordered: %+v", a)
	}

	// The device has obeyed, and the manager has kept the line.
	rows := anchoredRows(t, d.Spec.AuditAnchor, 4)
	data := kept(t, key, rows, 4)
	e, c, err := checkpoint.ReadEntry(data, checkpoint.Key(4))
	must(err)
	c.Line, e.Line = a.Line, a.Line
	e.Note, err = c.Sign("web1", key)
	must(err)
	b, err := json.Marshal(e)
	must(err)
	m.Data = map[string]string{checkpoint.KeyAnchor: d.Spec.AuditAnchor, checkpoint.Key(4): string(b)}
	must(admin.Update(t.Context(), m))
	d.Status.AuditKept = &v1alpha1.KeptAudit{Line: a.Line, Rows: 4, Root: c.Root.String(), At: metav1.Now()}
	must(admin.Status().Update(t.Context(), d))
	out, err = do(strings.Join(rows, "\n"), "verify", "web1", "--rows", "-")
	if err != nil || !strings.Contains(out, "anchored: line ") || !strings.Contains(out, "disk restored") || !strings.Contains(out, "Truncated at row 6") || !strings.Contains(out, "intact: 4 rows") {
		t.Errorf("%q, %v", out, err)
	}
	must(anchored(t.Context(), io.Discard, watching(t, cfg), d, a.Line, time.Minute))
	// A line that does not begin with the order, and an order that the root key has not given.
	var f *checkpoint.Finding
	other := rowsOf(t, 4, 4, "")
	m.Data = kept(t, key, other, 4)
	m.Data[checkpoint.KeyAnchor] = d.Spec.AuditAnchor
	must(admin.Update(t.Context(), m))
	if out, err = do(strings.Join(other, "\n"), "verify", "web1", "--rows", "-"); !errors.As(err, &f) || f.Trouble != checkpoint.Forked || f.Row != 1 {
		t.Errorf("%q, %v", out, err)
	}
	m.Data[checkpoint.KeyAnchor], err = checkpoint.Anchor{Device: "web1", Line: a.Line, Rows: 8, Root: a.Root}.Sign(key)
	must(err)
	must(admin.Update(t.Context(), m))
	if out, err = do("", "verify", "web1"); err == nil || !strings.Contains(err.Error(), "was not ordered") {
		t.Errorf("%q, %v", out, err)
	}
}

// Where the checkpoints are gone the order goes by what the Device still bears, and where there were none by none.
func TestAuditReanchorWithoutCheckpoints(t *testing.T) {
	cfg, admin := apitest.Start(t)
	root := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	pem, err := dsse.EncodePrivateKey(root)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "root.key")
	if err := os.WriteFile(keyFile, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	at := checkpoint.Checkpoint{Line: 3, Rows: 7, Root: [32]byte{1}}
	for _, c := range []struct {
		name   string
		status *v1alpha1.KeptAudit
		want   checkpoint.Checkpoint
	}{
		{"taken away", &v1alpha1.KeptAudit{Line: at.Line, Rows: at.Rows, Root: at.Root.String(), At: metav1.Now()}, at},
		{"never kept", nil, checkpoint.Checkpoint{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns, system := apitest.Namespace(t, admin), apitest.Namespace(t, admin)
			d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7443", PublicKey: publicKey(1), RootKey: publicKey(2)}}
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.Audit(ns, "web1")},
				Data: map[string]string{checkpoint.KeyBroken: `{"trouble":"Edited","row":2,"detail":"x","at":"2026-12-01T12:00:00Z","reply":""}`}}
			if err := errors.Join(admin.Create(t.Context(), d), admin.Create(t.Context(), m)); err != nil {
				t.Fatal(err)
			}
			d.Status.AuditKept = c.status
			if err := admin.Status().Update(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if _, _, err := run(t, "", "audit", "reanchor", "web1", "--key", keyFile, "--wait", "0", "--kubeconfig", kubeconfig(t, cfg, ns), "--system-namespace", system); err != nil {
				t.Fatal(err)
			}
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			a, err := checkpoint.OpenAnchor(d.Spec.AuditAnchor, "web1", root.Public().(ed25519.PublicKey))
			if err != nil || a.Kept() != c.want || a.Trouble != checkpoint.Edited {
				t.Errorf("ordered: %+v, %v", a, err)
			}
		})
	}
}

// anchoredRows of a line that begins with an order.
func anchoredRows(t *testing.T, order string, n int) []string {
	t.Helper()
	var all []string
	prev := chain.Genesis
	for i := range n {
		r := chain.Row{Seq: int64(i + 1), At: "1", Kind: chain.Intent, Prev: prev}
		if i == 0 {
			r.Kind, r.Args = chain.Anchor, order
		}
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		all, prev = append(all, body), chain.Hash(body)
	}
	return all
}

func watching(t *testing.T, cfg *rest.Config) client.WithWatch {
	t.Helper()
	cl, err := client.NewWithWatch(cfg, client.Options{Scheme: apitest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}
