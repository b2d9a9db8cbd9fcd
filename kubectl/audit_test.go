package kubectl

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

// rowsOf an audit: n of them, those after the first written by somebody.
func rowsOf(t *testing.T, n, first int, somebody string) (all []string) {
	t.Helper()
	prev := chain.Genesis
	for i := range n {
		agent := "ops"
		if i >= first {
			agent = somebody
		}
		body, err := chain.Row{Seq: int64(i + 1), Kind: chain.Intent, Agent: agent, At: "1", Prev: prev}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		all, prev = append(all, body), chain.Hash(body)
	}
	return all
}

// kept checkpoints of rows, as the manager keeps them.
func kept(t *testing.T, key ed25519.PrivateKey, rows []string, at ...int64) map[string]string {
	t.Helper()
	data := map[string]string{}
	var tree checkpoint.Tree
	for i, body := range rows {
		leaf, err := checkpoint.Leaf(chain.Hash(body))
		if err != nil {
			t.Fatal(err)
		}
		if tree.Add(leaf); !slices.Contains(at, int64(i+1)) {
			continue
		}
		c := tree.Now()
		note, err := c.Sign("web1", key)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(checkpoint.Entry{Root: c.Root.String(), At: "2026-12-01T12:00:00Z", Now: 1000, Note: note})
		if err != nil {
			t.Fatal(err)
		}
		data[checkpoint.Key(c.Rows)] = string(b)
	}
	return data
}

func TestAuditVerify(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	good := rowsOf(t, 9, 9, "")
	found := kept(t, key, good, 4)
	found[checkpoint.KeyBroken] = `{"trouble":"Truncated","row":5,"detail":"x","at":"2026-12-01T12:00:00Z","reply":""}`
	for _, c := range []struct {
		name   string
		data   map[string]string
		rows   []string // nil: not given
		from   string   // the flag for them; --rows when empty
		want   checkpoint.Trouble
		row    int64
		told   string // by the output, when it is intact
		failed string // when it cannot be told
	}{
		{name: "intact, without rows", data: kept(t, key, good, 4, 8), told: "as far as checkpoints tell"},
		{name: "intact", data: kept(t, key, good, 4, 8), rows: good, told: "intact: 9 rows"},
		{name: "edited", data: kept(t, key, good, 4, 8), rows: append(append(slices.Clone(good[:5]), strings.Replace(good[5], "ops", "dev", 1)), good[6:]...), want: checkpoint.Forked, row: 7},
		{name: "written anew", data: kept(t, key, good, 4, 8), rows: rowsOf(t, 9, 5, "forger"), want: checkpoint.Forked, row: 8},
		{name: "taken out", data: kept(t, key, good, 4, 8), rows: append(slices.Clone(good[:5]), good[6:]...), want: checkpoint.Gap, row: 6},
		{name: "doubled", data: kept(t, key, good, 4, 8), rows: append(slices.Clone(good), good[2]), want: checkpoint.Duplicate, row: 3},
		{name: "cut off", data: kept(t, key, good, 4, 8), rows: good[:6], want: checkpoint.Truncated, row: 7},
		{name: "a replica", data: kept(t, key, good, 4, 8), rows: good, from: "--replica", told: "intact: 9 rows"},
		{name: "a replica that is behind", data: kept(t, key, good, 4, 8), rows: good[:6], from: "--replica", told: "the replica has 6 rows, the newest checkpoint 8"},
		{name: "a replica that is bent", data: kept(t, key, good, 4, 8), rows: rowsOf(t, 6, 2, "forger"), from: "--replica", want: checkpoint.Forked, row: 4},
		{name: "garbage", data: kept(t, key, good, 4, 8), rows: []string{"{}"}, want: checkpoint.Edited, row: 1},
		{name: "found by the manager", data: found, want: checkpoint.Truncated, row: 5},
		{name: "found by the manager, and the rows seem in order", data: found, rows: good, want: checkpoint.Truncated, row: 5},
		{name: "kept by another key", data: kept(t, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)), good, 4), failed: "not signed by the key"},
		{name: "nothing kept", failed: "nothing is kept"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, admin := apitest.Start(t)
			ns, system := apitest.Namespace(t, admin), apitest.Namespace(t, admin)
			objects := []client.Object{&v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"},
				Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7443", PublicKey: publicKey(1), RootKey: publicKey(2)}}}
			if c.data != nil {
				objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.Audit(ns, "web1")}, Data: c.data})
			}
			for _, o := range objects {
				if err := admin.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"audit", "verify", "web1", "--kubeconfig", kubeconfig(t, cfg, ns), "--system-namespace", system}
			if c.rows != nil {
				args = append(args, cmp.Or(c.from, "--rows"), "-")
			}
			out, _, err := run(t, strings.Join(c.rows, "\n")+"\n", args...)
			var f *checkpoint.Finding
			switch {
			case c.want != "":
				if !errors.As(err, &f) || f.Trouble != c.want || f.Row != c.row {
					t.Errorf("got %v, want %s at row %d", err, c.want, c.row)
				}
			case c.failed != "":
				if err == nil || errors.As(err, &f) || !strings.Contains(err.Error(), c.failed) {
					t.Errorf("got %v, want an error about %q that is no verdict", err, c.failed)
				}
			case err != nil || !strings.Contains(out, c.told):
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

// The newest reply of the device counts too, before the manager has seen it.
func TestAuditVerifyJudgesTheNewestReply(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns, system := apitest.Namespace(t, admin), apitest.Namespace(t, admin)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7443", PublicKey: publicKey(1), RootKey: publicKey(2)}}
	for _, o := range []client.Object{d, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.Audit(ns, "web1")}, Data: kept(t, key, rowsOf(t, 8, 8, ""), 8)}} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	rows := strings.Join(rowsOf(t, 8, 8, ""), "\n")
	_, newest, err := checkpoint.ReadEntry(kept(t, key, rowsOf(t, 8, 8, ""), 8), checkpoint.Key(8))
	if err != nil {
		t.Fatal(err)
	}
	root := newest.Root.String()
	for name, c := range map[string]struct {
		known  string
		silent bool // it gave none
		rows   string
		want   checkpoint.Trouble
		failed error // when it cannot be told
		told   string
	}{
		"news":                 {known: root, want: checkpoint.Truncated},
		"news, and rows":       {known: root, rows: rows, want: checkpoint.Truncated},
		"an old one":           {failed: checkpoint.ErrOlder},
		"an old one, and rows": {rows: rows, told: checkpoint.ErrOlder.Error()},
		"none":                 {silent: true, failed: errNoReply},
		"none, and rows":       {silent: true, rows: rows, told: errNoReply.Error()},
	} {
		reply, err := checkpoint.Reply{Device: "web1", Since: 8, Known: c.known, Now: 1000}.Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		d.Status.Audit = &v1alpha1.DeviceAudit{At: metav1.Now(), Reply: string(reply)}
		if c.silent {
			d.Status.Audit = &v1alpha1.DeviceAudit{At: metav1.Now(), Finding: "it gives none"}
		}
		if err := admin.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		args := []string{"audit", "verify", "web1", "--kubeconfig", kubeconfig(t, cfg, ns), "--system-namespace", system}
		if c.rows != "" {
			args = append(args, "--rows", "-")
		}
		out, _, err := run(t, c.rows, args...)
		var f *checkpoint.Finding
		if errors.As(err, &f) != (c.want != "") || f != nil && (f.Trouble != c.want || f.Row != 1) {
			t.Errorf("%s: got %v, %q", name, err, out)
		}
		if f == nil && !errors.Is(err, c.failed) || !strings.Contains(out, c.told) || (err != nil) == strings.Contains(out, "intact") {
			t.Errorf("%s: got %v, %q", name, err, out)
		}
	}
}
