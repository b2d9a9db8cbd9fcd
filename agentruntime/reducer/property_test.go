package reducer

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/doors"
)

// machine is a runtime that may die between any two steps, and a world that remembers what reached it.
type machine struct {
	*world
	rt *rapid.T
	// deeds by call ID: what really ran outside, once for each ID; tries counts how often it was asked for.
	deeds map[string]string
	tries map[string]int
	asks  int
}

// crash forgets all but the log and the open intents, and reads the log again.
func (m *machine) crash() {
	fresh := New("log-1")
	for _, e := range m.log {
		if err := fresh.Apply(e); err != nil {
			m.rt.Fatal(err)
		}
	}
	if diff := cmp.Diff(m.state, fresh, cmp.AllowUnexported(State{}, Item{}, Turn{}), cmpopts.EquateEmpty()); diff != "" {
		m.rt.Fatalf("the state after reading the log again differs: %s", diff)
	}
	m.state = fresh
}

func (m *machine) mayCrash(where string) bool {
	if rapid.IntRange(0, 5).Draw(m.rt, where) == 0 {
		m.crash()
		if rapid.IntRange(0, 3).Draw(m.rt, "a person writes while it is away") == 0 {
			m.person("and?")
			m.asks = 0
		}
		return true
	}
	return false
}

func (m *machine) reply() Reply {
	w := rapid.Custom(func(t *rapid.T) Wanted {
		return Wanted{
			ProviderID: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "provider id"),
			Tool:       rapid.SampledFrom([]string{"fs_read", "fs_write", SubmitPlan, AskHuman, Finish, "unknown"}).Draw(t, "tool"),
			Args:       rapid.SampledFrom([]string{`{}`, `{"path":"/a"}`, `{"path":"/b"}`, `{"summary":"s","question":"q"}`, `{`, ``}).Draw(t, "args"),
		}
	})
	return Reply{Text: rapid.SampledFrom([]string{"", "words", "s"}).Draw(m.rt, "text"), Wanted: rapid.SliceOfN(w, 0, 3).Draw(m.rt, "wanted")}
}

// step does the next effect as the loop does: intent, effect, outcome, dying in between now and then.
func (m *machine) step() bool {
	switch e := m.it().Next(m.env).(type) {
	case AskModel:
		if m.mayCrash("before asking") || m.mayCrash("after asking") {
			return true
		}
		m.asks++
		if rapid.IntRange(0, 3).Draw(m.rt, "a person writes meanwhile") == 0 {
			m.person("more")
			m.asks = 0
		}
		m.append(m.it().Replied(e, m.reply(), check, m.env))
	case CallTool:
		m.env.Begun[e.Call.ID] = true
		if m.mayCrash("after the intent") {
			return true
		}
		body := e.Call.Tool + e.Call.Args
		if have, ok := m.deeds[e.Call.ID]; ok && have != body {
			m.rt.Fatalf("one ID, two calls: %q and %q", have, body)
		}
		m.deeds[e.Call.ID] = body
		m.tries[e.Call.ID]++
		if m.mayCrash("after the effect") {
			return true
		}
		m.append(m.it().Resulted(e.Call, rapid.SampledFrom([]doors.ToolResult{done, pending, {Status: doors.Refused}, {Status: doors.Failed}, {Status: doors.Halted}, {Status: doors.Unknown}, {Status: doors.Done, Step: 1}}).Draw(m.rt, "result"), "text"))
		delete(m.env.Begun, e.Call.ID)
	case Answer:
		if m.env.Begun[e.Call.ID] {
			m.rt.Fatal("a call that may have run is answered without asking the world")
		}
		m.append(m.it().NotMade(e))
	case Say:
		m.append(m.it().Spoken(e))
	case AskPerson:
		b, err := m.it().Asked(e)
		if err != nil {
			m.rt.Fatal(err)
		}
		m.append(b)
	case Wait:
		return false
	}
	m.mayCrash("after the outcome")
	return true
}

func TestNoEffectTwiceFromAnyPrefixWithCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{world: newWorld(t), rt: rt, deeds: map[string]string{}, tries: map[string]int{}}
		m.env.CanAsk = rapid.Bool().Draw(rt, "can ask")
		m.person("do it")
		for i := 0; i < 60; i++ {
			if m.step() {
				if m.asks > 80 {
					rt.Fatal("the model is asked without end")
				}
				continue
			}
			if len(m.it().Open) > 0 && !m.it().Ended {
				rt.Fatalf("waiting with open calls: %v", m.it().Open)
			}
			m.asks = 0
			switch rapid.IntRange(0, 3).Draw(rt, "the world") {
			case 0:
				m.platform(event.TopicPlan, rapid.SampledFrom([]string{"Approved", "Rejected", "Superseded"}).Draw(rt, "decision"))
			case 1:
				m.platform(event.TopicAnswer, "Continue")
			default:
				m.person("go on")
			}
		}
		// Each call the log knows an outcome of from outside was made, and each that was made is in the log.
		inLog := map[string]string{}
		answered := map[string]int{}
		for _, e := range m.log {
			switch e.Type { //nolint:exhaustive // calls and their results are all that is compared
			case event.ToolCall:
				var c event.Call
				if err := e.Decode(&c); err != nil {
					rt.Fatal(err)
				}
				inLog[c.ID] = c.Tool + c.Args
			case event.ToolResult:
				var r event.Result
				if err := e.Decode(&r); err != nil {
					rt.Fatal(err)
				}
				answered[r.Call]++
				if _, ran := m.deeds[r.Call]; ran != (r.Origin == event.Tool) {
					rt.Fatalf("call %s: ran %v, result from %s", r.Call, ran, r.Origin)
				}
			}
		}
		for id, body := range m.deeds {
			if inLog[id] != body {
				rt.Fatalf("deed %s is %q, the log wanted %q", id, body, inLog[id])
			}
		}
		for id, n := range answered {
			if n > 1 {
				rt.Fatalf("call %s has %d results", id, n)
			}
		}
		seen := map[string]bool{}
		for _, o := range m.say {
			if seen[o.ID] {
				rt.Fatalf("said twice: %v", o)
			}
			seen[o.ID] = true
		}
	})
}

func TestAnyPrefixOfALogLeadsToTheSameEffect(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{world: newWorld(t), rt: rt, deeds: map[string]string{}, tries: map[string]int{}}
		m.person("do it")
		next := map[int]string{}
		for range 40 {
			if len(m.env.Begun) == 0 {
				next[len(m.log)] = fmt.Sprintf("%#v", m.it().Next(m.env))
			}
			if !m.step() {
				m.person("go on")
			}
		}
		for n, want := range next {
			s := New("log-1")
			for _, e := range m.log[:n] {
				if err := s.Apply(e); err != nil {
					rt.Fatal(err)
				}
			}
			if got := fmt.Sprintf("%#v", s.Item("wi-1").Next(Env{Calls: 12, CanAsk: true})); got != want {
				rt.Fatalf("after %d events:\n got %s\nwant %s", n, got, want)
			}
		}
	})
}
