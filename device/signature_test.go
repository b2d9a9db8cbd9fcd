package device_test

import (
	"testing"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/manifest"
)

// A rule that demands a person's own signature is not served without one, and nothing can bring one: the refusal is final, whatever the
// manager's statement says.
func TestPersonSignature(t *testing.T) {
	w := newWorld(t)
	w.hold(func(m *manifest.Manifest) {
		m.Keys.Persons = map[string][]string{"lucas": {text(key(9))}}
		writes := m.Paths[manifest.FSWrite]
		signed := manifest.PathRule{Glob: w.files + "/signed-*", Rule: manifest.Rule{Approval: manifest.Required, Signature: manifest.PersonSignature}}
		m.Paths[manifest.FSWrite] = append([]manifest.PathRule{signed}, writes...)
	})
	c := w.write("signed-a", "x")
	r := w.one("gate", c)
	a, _ := w.ask(r)
	w.want(a, wire.Refused, wire.NeedsSignature)
	if a.Reason.Transient() || a.Deed != r.Deed {
		t.Errorf("%s is not final: %+v", a.Reason, a)
	}
	if got := w.content("signed-a"); got != "" {
		t.Errorf("it wrote %q", got)
	}
	if _, err := w.resolve(c); err == nil {
		t.Error("it tells what would run")
	} else {
		wantReason(t, err, wire.NeedsSignature)
	}
	w.restart()
	a, _ = w.ask(r)
	w.want(a, wire.Refused, wire.NeedsSignature)
	if seen := w.seen(r.Deed); seen.State != wire.Refused || seen.Reason != wire.NeedsSignature {
		t.Errorf("it keeps %+v", seen)
	}
	a, _ = w.ask(w.one("gate2", w.write("b", "x"))) // what demands none
	w.want(a, wire.Succeeded, "")
}
