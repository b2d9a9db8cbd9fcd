package scriptedmodel

import (
	"encoding/json"
	"strings"
)

// facts is what rules ask about a request.
type facts struct {
	model    string
	messages []message
	offered  map[string]string // JSON Schema of the arguments, by tool

	user  string         // the last user message
	turns int            // assistant messages since then
	calls map[string]int // calls since then, by tool
	made  int            // all calls since then

	tool *result // the last tool result since the last user message

	args    map[string]string // arguments of the last call of each tool, in the whole conversation
	results map[string]string // the last result of each tool, in the whole conversation
}

type result struct{ name, content string }

func observe(r request, background []Pattern) facts {
	f := facts{
		model:    r.Model,
		messages: r.Messages,
		offered:  make(map[string]string),
		calls:    make(map[string]int),
		args:     make(map[string]string),
		results:  make(map[string]string),
	}
	for _, t := range r.Tools {
		f.offered[t.Function.Name] = string(t.Function.Parameters)
	}
	names := make(map[string]string) // by call id
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			if matchesAny(background, string(m.Content)) {
				continue
			}
			f.user, f.turns, f.made, f.tool = string(m.Content), 0, 0, nil
			clear(f.calls)
		case "assistant":
			f.turns++
			for _, call := range m.ToolCalls {
				names[call.ID] = call.Function.Name
				f.calls[call.Function.Name]++
				f.made++
				f.args[call.Function.Name] = call.Function.Arguments
			}
		case "tool":
			name := names[m.ToolCallID]
			f.tool = &result{name, string(m.Content)}
			f.results[name] = string(m.Content)
		}
	}
	return f
}

func matchesAny(patterns []Pattern, s string) bool {
	for _, p := range patterns {
		if p.MatchString(s) {
			return true
		}
	}
	return false
}

// step is the step of the plan submitted last that the next call should run, if one is left.
func (f facts) step() (map[string]any, bool) {
	var plan struct {
		Steps []map[string]any `json:"steps"`
	}
	if json.Unmarshal([]byte(f.args["submit_plan"]), &plan) != nil || f.made >= len(plan.Steps) {
		return nil, false
	}
	step := plan.Steps[f.made]
	// A call names the device among its arguments, and the capability as the tool: fs.write is fs_write.
	capability, _ := step["capability"].(string)
	args := make(map[string]any)
	if own, ok := step["args"].(map[string]any); ok {
		for name, value := range own {
			args[name] = value
		}
	}
	args["device"] = step["device"]
	return map[string]any{
		"tool": strings.ReplaceAll(capability, ".", "_"),
		"args": args,
	}, true
}
