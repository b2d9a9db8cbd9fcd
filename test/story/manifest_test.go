package story

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // the device's own store
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/test/stack"
)

// What the root key signed decides, at every moment: not the object as somebody left it, nor a person's approval of what was allowed
// before.
func TestSignedManifests(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	// Each time into another file, by which the gate's message is told from those before. The approval names it by its code, for plain
	// words so soon after others could mean those before.
	ask := func(name string) (approve string) {
		t.Helper()
		s.Say("Write the disk usage of the machine into " + s.Files + "/" + name + ".txt")
		s.Hear("nisse-gates", `(?s)`+name+`\.txt.*approve rev-1`)
		return code(s, name)
	}
	done := func(items, ran int) {
		t.Helper()
		s.AllClosed(items)
		if n := s.Ran("fs.write"); n != ran {
			t.Fatalf("fs.write ran %d times, want %d", n, ran)
		}
	}

	// Changed after it was signed.
	approve := ask("changed")
	s.Allow(false, func(m *api.DeviceManifestSpec) { m.Paths.Write[0].Glob = "/**" })
	s.Say(approve)
	s.Hear("nisse-ops", `changed after it was signed`)
	done(1, 0)

	// Signed again, approved, and revoked before it ran.
	s.Allow(true, func(m *api.DeviceManifestSpec) { m.Paths.Write[0].Glob = s.Files + "/**" })
	approve = ask("revoked")
	s.Revoke()
	s.Wait(stack.Patience, "the device to confirm", func(ctx context.Context) error {
		var d api.Device
		if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: stack.Device}, &d); err != nil {
			return err
		}
		if d.Status.RevokedEpoch != d.Spec.RevokedEpoch {
			return fmt.Errorf("it confirms epoch %d of %d", d.Status.RevokedEpoch, d.Spec.RevokedEpoch)
		}
		return nil
	})
	s.Say(approve)
	s.Hear("nisse-ops", `manifests were revoked`)
	done(2, 0)

	// Signed anew: it works again; also after the device's restart, and when it has lost what it held.
	s.Allow(true, func(*api.DeviceManifestSpec) {})
	approve = ask("again")
	s.Say(approve)
	done(3, 1)
	s.Kill("nisse-device")
	s.Revive("nisse-device")
	approve = ask("restarted")
	s.Say(approve)
	done(4, 2)
	s.Kill("nisse-device")
	forget(t, s)
	s.Revive("nisse-device")
	approve = ask("wiped")
	s.Say(approve)
	done(5, 3)
}

// code with which to approve the gate that waits for something.
func code(s *stack.Stack, title string) string {
	s.T.Helper()
	var gates api.GateList
	if err := s.Admin.List(s.T.Context(), &gates, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	i := slices.IndexFunc(gates.Items, func(g api.Gate) bool { return g.Open() && strings.Contains(g.Spec.Title, title) })
	if i < 0 {
		s.T.Fatalf("no gate for %s waits", title)
	}
	return "approve " + approval.Code(gates.Items[i].Spec.Digest, string(gates.Items[i].UID))
}

// What cannot be undone says so above everything else, and is approved by the code that stands under it, not by habit.
func TestIrreversibleStepsWantTheCode(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	s.Allow(true, func(m *api.DeviceManifestSpec) { m.Paths.Write[0].Irreversible = true })
	s.Say(request(s))
	gate := s.Hear("nisse-gates", `(?s)step 1 cannot be undone, says the manifest of web1.*Reply  approve [A-Z2-7]{6}`)
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `wants its code`)
	s.Say(regexp.MustCompile(`approve [A-Z2-7]{6}`).FindString(gate.Body))
	s.Closed(api.ResultDone)
	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
	programs(s)
}

// programs that run are the ones that a person was shown: what is exchanged between approval and run does not run, the person is told, and the
// agent may ask for it as it is then.
func programs(s *stack.Stack) {
	t, tool, log := s.T, filepath.Join(s.Dir, "exchanged"), filepath.Join(s.Files, "log")
	t.Helper()
	install := func(says string) (hash string) {
		t.Helper()
		text := fmt.Sprintf("#!/bin/sh\necho %s >> %s\n", says, log)
		if err := errors.Join(os.WriteFile(tool+".new", []byte(text), 0o755), os.Rename(tool+".new", tool)); err != nil {
			t.Fatal(err)
		}
		return canonical.Hex([]byte(text))
	}
	shown := func(rev int, hash string) *api.Gate {
		t.Helper()
		line := fmt.Sprintf(`runs "%s" as %s, SHA-256 %s…`, tool, confine.Self(), hash[:12])
		s.Hear("nisse-gates", fmt.Sprintf(`(?s)rev-%d.*web1 · exec\n   argv = \["%[2]s"\]\n   %s`, rev, regexp.QuoteMeta(tool), regexp.QuoteMeta(line)))
		g := s.OpenGate(api.GatePlan, int32(rev))
		if !strings.Contains(g.Spec.Message, line) {
			t.Errorf("the room shows another text than the object: %q", g.Spec.Message)
		}
		return g
	}
	s.Allow(true, func(m *api.DeviceManifestSpec) {
		m.Commands = append(m.Commands, api.ManifestCommand{Argv: []string{tool}, ManifestRule: api.ManifestRule{Approval: "Required"}})
	})
	honest, before := install("honest"), s.Ran("exec")
	s.Say("Run " + tool)
	shown(1, honest)
	approve := code(s, tool)
	exchanged := install("exchanged")
	s.Say(approve)
	s.Hear("nisse-ops", `✗ web1 exec argv=.*: refused, ExecutableChanged`)
	shown(2, exchanged)
	if text, err := os.ReadFile(log); !os.IsNotExist(err) || s.Ran("exec") != before {
		t.Fatalf("it ran: %q, %v", text, err)
	}
	s.Say(code(s, tool))
	s.AllClosed(2)
	if text, err := os.ReadFile(log); err != nil || string(text) != "exchanged\n" || s.Ran("exec") != before+1 {
		t.Errorf("it says %q, %v, and ran %d times", text, err, s.Ran("exec")-before)
	}
	var states []api.JobState
	for _, j := range s.Jobs() {
		if j.Spec.Capability == "exec" {
			states = append(states, j.Status.State)
		}
	}
	slices.Sort(states)
	if d := cmp.Diff([]api.JobState{api.JobRefused, api.JobSucceeded}, states); d != "" {
		t.Error(d)
	}
}

// forget the manifests that the device holds, as if they had never come.
func forget(t *testing.T, s *stack.Stack) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(s.DeviceConfig()), "device.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.ExecContext(t.Context(), "DELETE FROM manifests")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d manifests forgotten, %v", n, err)
	}
}
