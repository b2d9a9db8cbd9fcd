package modelcheck

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/internal/manifest"
)

// Long runs: it takes a dozen steps in the right order before anything happens at all.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.steps"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("200") // a number: it cannot fail
	}
	if *runsFlag > 0 {
		_ = flag.Set("rapid.checks", strconv.Itoa(*runsFlag))
	}
	os.Exit(m.Run())
}

// Random interleavings of whatever calls a runtime may make. After every action, no deed has happened twice.
func TestDeedsAtMostOnce(t *testing.T) {
	ran, asked := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "run-")
		if err != nil {
			rt.Fatal(err)
		}
		w := newWorld(rt, dir)
		defer func() {
			for _, n := range w.runs() {
				ran += n
			}
			asked += w.asked
			_ = w.daemon.Close()
			_ = os.RemoveAll(dir)
		}()
		// It begins with a plan, or with a single call.
		single := func() {
			w.serial++
			w.advance(&op{call: judge.Call{Device: "d", Capability: manifest.Exec, Args: w.args(w.serial, 1)}})
		}
		rapid.SampledFrom([]func(){w.submit, single}).Draw(rt, "begin")()
		w.approve()
		advance := func(rt *rapid.T) {
			if len(w.ops) == 0 {
				return
			}
			i := rapid.IntRange(0, len(w.ops)-1).Draw(rt, "op")
			for range rapid.IntRange(1, 3).Draw(rt, "stages") {
				if !w.advance(w.ops[i]) {
					w.ops = append(w.ops[:i], w.ops[i+1:]...)
					return
				}
			}
		}
		deliver := func(rt *rapid.T) {
			if len(w.net) == 0 {
				return
			}
			i := rapid.IntRange(0, len(w.net)-1).Draw(rt, "packet")
			p := w.net[i]
			if !rapid.Bool().Draw(rt, "and again later") {
				w.net = append(w.net[:i], w.net[i+1:]...)
			}
			w.deliver(p, rapid.Bool().Draw(rt, "answer arrives"))
		}
		call := func(rt *rapid.T) {
			if len(w.ops) > 6 {
				return
			}
			p := w.cluster.plans[rapid.IntRange(max(0, len(w.cluster.plans)-2), len(w.cluster.plans)-1).Draw(rt, "plan")]
			s := p.Spec.Steps[rapid.IntRange(0, len(p.Spec.Steps)-1).Draw(rt, "step")]
			id := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "id")
			w.ops = append(w.ops, &op{call: judge.Call{ID: id, Device: "d", Capability: manifest.Exec, Args: s.Args}})
		}
		rt.Repeat(map[string]func(*rapid.T){
			// What happens often stands more than once.
			"call": call, "call again": call, "call once more": call,
			"call what is in no plan": func(*rapid.T) {
				if len(w.ops) <= 6 {
					w.serial++
					w.ops = append(w.ops, &op{call: judge.Call{Device: "d", Capability: manifest.Exec, Args: w.args(w.serial, 1)}})
				}
			},
			"advance": advance, "advance another": advance, "advance a third": advance, "advance a fourth": advance,
			"deliver": deliver, "deliver another": deliver, "deliver a third": deliver,
			"go on": func(*rapid.T) { w.answer(); w.approve() },
			"lose": func(rt *rapid.T) {
				if len(w.net) > 0 {
					w.net = w.net[1:]
				}
			},
			"vote": func(rt *rapid.T) {
				who := rapid.SampledFrom([]string{"lucas@example.org", "mallory@example.org"}).Draw(rt, "who")
				d := rapid.SampledFrom([]api.Decision{api.DecisionApprove, api.DecisionReject}).Draw(rt, "decision")
				w.vote(rapid.IntRange(0, len(w.cluster.gates)-1).Draw(rt, "gate"), who, d)
			},
			"manager":     func(*rapid.T) { w.decide() },
			"broker dies": func(*rapid.T) { w.ops = nil },
			"device dies": func(*rapid.T) { w.crash() },
			"device dies at its next write": func(rt *rapid.T) {
				if len(w.net) == 0 {
					return
				}
				w.fault = true
				w.deliver(w.net[rapid.IntRange(0, len(w.net)-1).Draw(rt, "packet")], false)
				w.crash()
			},
			"time passes": func(rt *rapid.T) {
				w.now = w.now.Add(rapid.SampledFrom(durations).Draw(rt, "for"))
			},
			"decide": func(rt *rapid.T) {
				rapid.SampledFrom([]func(){w.stop, w.answer, w.replan, w.approve, w.submit, func() { w.submit(); w.answer(); w.approve() }}).Draw(rt, "what")()
			},
			"snapshot": func(*rapid.T) {
				w.older = w.cluster.clone()
			},
			"API server is put back": func(*rapid.T) {
				if w.older != nil {
					w.cluster = w.older.clone()
				}
			},
			"": func(*rapid.T) { w.check() },
		})
	})
	if ran == 0 || asked == 0 {
		t.Errorf("%d deeds ran, %d calls were asked about: the check proves nothing", ran, asked)
	}
	t.Logf("%d deeds done", ran)
}
