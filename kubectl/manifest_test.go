package kubectl

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nisse.io/nisse/internal/dsse"
)

func publicKey(seed byte) string {
	k := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return dsse.EncodeKey(k.Public().(ed25519.PublicKey))
}

func unsigned() string {
	return `# what web1 lets agents do
apiVersion: nisse.io/v1alpha1
kind: DeviceManifest
metadata: {name: web1-user}
spec:
  device: web1
  privilege: User
  expiresAt: "2027-06-01T00:00:00Z" # half a year
  keys:
    request: ["` + publicKey(1) + `"]
    approval: ["` + publicKey(2) + `"]
  paths:
    fs.read:
    - {glob: "/srv/nisse/**", approval: None} # ours alone
  limits: {writeBytes: 65536, outputBytes: 262144, timeoutSeconds: 60}
---
# something else stays as it is
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
`
}

// run the plugin and return what it printed.
func run(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	c := New("test")
	var out, errs bytes.Buffer
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SetArgs(args)
	err = c.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// root makes a key as a person would, and returns its file and its public half.
func root(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "root.key")
	out, _, err := run(t, "", "keygen", "--out", file)
	if err != nil {
		t.Fatal(err)
	}
	return file, strings.TrimSpace(strings.TrimPrefix(out, "rootKey: "))
}

func TestKeygenReplacesNothing(t *testing.T) {
	file, _ := root(t)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	before, _ := os.ReadFile(file)
	if _, _, err := run(t, "", "keygen", "--out", file); err == nil {
		t.Error("made a key over another")
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the key changed")
	}
}

func TestSignVerifyChange(t *testing.T) {
	key, public := root(t)
	file := filepath.Join(t.TempDir(), "web1.yaml")
	if err := os.WriteFile(file, []byte(unsigned()), 0o640); err != nil {
		t.Fatal(err)
	}
	if out, _, err := run(t, "", "manifest", "verify", "-f", file, "--root", public); err == nil || !strings.Contains(out, "unsigned") {
		t.Errorf("before signing: %q, %v", out, err)
	}
	if _, told, err := run(t, "", "manifest", "sign", "-f", file, "--key", key, "--in-place"); err != nil || !strings.Contains(told, "signed web1-user, epoch") {
		t.Fatalf("%q, %v", told, err)
	}
	signed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{"# what web1 lets agents do", "# half a year", "# ours alone", "# something else stays as it is", "name: other"} {
		if !strings.Contains(string(signed), kept) {
			t.Errorf("%q is gone:\n%s", kept, signed)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if out, _, err := run(t, "", "manifest", "verify", "-f", file, "--root", public); err != nil || !strings.Contains(out, "web1-user: signed, epoch") {
		t.Errorf("after signing: %q, %v", out, err)
	}
	_, other := root(t)
	if out, _, err := run(t, "", "manifest", "verify", "-f", file, "--root", other); err == nil {
		t.Errorf("another root key took it: %q", out)
	}
	changed := strings.Replace(string(signed), "/srv/nisse/**", "/**", 1)
	if out, _, err := run(t, changed, "manifest", "verify", "-f", "-", "--root", public); err == nil || !strings.Contains(out, "changed after it was signed") {
		t.Errorf("changed: %q, %v", out, err)
	}
	again, _, err := run(t, string(signed), "manifest", "sign", "-f", "-", "--key", key)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(again, "signature:"); n != 1 {
		t.Errorf("signed again, it has %d signatures", n)
	}
	if again == string(signed) {
		t.Error("signed again, the epoch did not rise")
	}
}

func TestSignsWhatKubectlPrints(t *testing.T) {
	key, public := root(t)
	one := strings.Split(unsigned(), "---")[0]
	var lines []string
	for _, l := range strings.Split(strings.TrimSpace(one), "\n") {
		lines = append(lines, "  "+l)
	}
	list := "apiVersion: v1\nkind: List\nitems:\n-\n" + strings.Join(lines, "\n") + "\n"
	signed, _, err := run(t, list, "manifest", "sign", "-f", "-", "--key", key)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := run(t, signed, "manifest", "verify", "-f", "-", "--root", public); err != nil {
		t.Errorf("%s: %v", out, err)
	}
}

func TestSignRefuses(t *testing.T) {
	key, _ := root(t)
	for _, c := range []struct{ name, old, new, want string }{
		{"a name of its own", "name: web1-user", "name: mine", "is named web1-user"},
		{"an unknown field", "  limits:", "  anything: goes\n  limits:", "anything"},
		{"a field in another case", "  device: web1", "  Device: web1", "Device"},
		{"too long a life", "2027-06-01", "2037-06-01", "last at most"},
		{"past", "2027-06-01", "2017-06-01", "past"},
		{"writing without approval", "fs.read:", "fs.write:", "always needs approval"},
		{"no manifest", "kind: DeviceManifest", "kind: Device", "no DeviceManifest"},
		{"a duplicate key", "  device: web1", "  device: web1\n  device: web2", "device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := run(t, strings.Replace(unsigned(), c.old, c.new, 1), "manifest", "sign", "-f", "-", "--key", key)
			if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("got %v, want one about %q; printed %q", err, c.want, out)
			}
		})
	}
	if _, _, err := run(t, "", "manifest", "sign", "-f", "-", "--key", key, "--in-place"); err == nil {
		t.Error("standard input was signed in place")
	}
	if _, _, err := run(t, "", "manifest", "sign", "-f", "x.yaml", "--key", "none"); err == nil || !strings.Contains(err.Error(), "read the key: open none") {
		t.Errorf("%v", err)
	}
}
