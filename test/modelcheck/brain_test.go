package modelcheck

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/manifest"
)

// enough plans for one item.
const enough = 12

// answer of the model: by the state that the prompt tells it of, or astray.
func (h *house) answer(a *core.Ask, r model.Request) model.Answer {
	if len(r.Messages) < 2 || r.Messages[0].Role != model.System {
		h.Fatalf("the model is shown %d messages", len(r.Messages))
	}
	out := h.sensible(a.Now.Item, lastResult(r))
	if h.chance(h.wild) {
		out = h.astray(a.Now.Item)
	}
	h.note("the model: %q %v %s", out.Text, out.Calls, out.Problem)
	return out
}

// words that are in the world once.
func (h *house) words() string { return fmt.Sprintf("words %d.", h.next()) }

func (h *house) wants(tool string, args any) model.Call {
	b, err := canonical.Marshal(args)
	h.must(err)
	return model.Call{ID: fmt.Sprint("p", h.next()), Tool: tool, Args: string(b)}
}

func (h *house) plan() model.Call {
	n := h.next()
	var list []any
	for s := 1; s <= steps; s++ {
		list = append(list, map[string]any{"device": "d", "capability": manifest.Exec, "args": json.RawMessage(h.args(n, s))})
	}
	return h.wants(tools.SubmitPlan, map[string]any{"reason": h.words(), "steps": list})
}

func (h *house) exec(argv ...string) model.Call {
	return h.wants("exec", map[string]any{"device": "d", "argv": argv})
}

// look that needs no approval.
func (h *house) free() model.Call {
	return h.exec("/usr/bin/mktemp", "-q", filepath.Join(h.dir, "out", fmt.Sprintf("free%d.XXXXXXXX", h.next())))
}

func (h *house) stepCall(s doors.Step) model.Call {
	var a manifest.ExecArgs
	h.must(json.Unmarshal(s.Args, &a))
	return h.exec(a.Argv...)
}

func (h *house) done() model.Call { return h.wants(tools.Finish, map[string]any{"summary": h.words()}) }

// lastResult that the model is shown.
func lastResult(r model.Request) string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == model.Tool {
			return m.Text
		}
	}
	return ""
}

// sensible: submit a plan, carry out what was approved, finish.
func (h *house) sensible(it doors.Item, result string) model.Answer {
	p := it.Plan
	again := func() model.Answer {
		if len(h.cluster.plans) >= enough {
			return model.Answer{Calls: []model.Call{h.done()}}
		}
		if h.mishap(0.3) {
			return model.Answer{Text: h.words(), Calls: []model.Call{h.free(), h.plan()}}
		}
		if h.chance(0.2) { // one call, without a plan
			return model.Answer{Calls: []model.Call{h.exec("/usr/bin/mktemp", h.target(h.next(), 1))}}
		}
		return model.Answer{Calls: []model.Call{h.plan()}}
	}
	switch {
	case strings.Contains(result, judge.ApprovalEnded) || strings.Contains(result, judge.PlanOver) || strings.Contains(result, nagging):
		return again() // the state does not tell that an approval has run out, the answer does
	case p == nil || p.Closed || p.State == "Rejected" || p.State == "Expired" || p.State == "Superseded":
		return again()
	case p.State != "Approved":
		return model.Answer{Text: h.words()}
	}
	var calls []model.Call
	for _, s := range p.Steps {
		switch s.State {
		case "Succeeded", "Unknown":
		case "Waiting", "Pending":
			calls = append(calls, h.stepCall(s))
		default:
			return again()
		}
	}
	switch {
	case len(calls) == 0:
		return model.Answer{Text: h.words(), Calls: []model.Call{h.done()}}
	case h.mishap(0.5):
		return model.Answer{Calls: append(calls, h.done())}
	}
	return model.Answer{Text: h.words(), Calls: calls[:1]}
}

// astray: what models do that err.
func (h *house) astray(it doors.Item) model.Answer {
	calls := []model.Call{h.free(), h.plan(), h.done(), h.wants(tools.AskHuman, map[string]string{"question": h.words()}), {ID: "x", Tool: "sudo", Args: "{}"},
		{ID: "x", Tool: "exec", Args: "{"}, {Tool: "exec", Args: ""}, h.exec("/usr/bin/mktemp", h.target(h.next(), 1)), h.exec("/usr/bin/false")}
	if it.Plan != nil {
		for _, s := range it.Plan.Steps {
			calls = append(calls, h.stepCall(s), h.stepCall(s))
		}
	}
	h.rng.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	calls = slices.Clone(calls[:h.rng.IntN(4)])
	if len(calls) > 0 && h.chance(0.2) {
		calls = append(calls, calls[0]) // one ID twice
	}
	a := model.Answer{Calls: calls}
	if h.chance(0.5) {
		a.Text = h.words()
	}
	if h.chance(0.1) {
		a.Problem = "it was cut off"
	}
	return a
}
