package scriptedmodel

import (
	"maps"
	"reflect"
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

	tool *result // the last tool result since the last user message

	args    map[string]string // arguments of the last call of each tool, in the whole conversation
	results map[string]string // the last result of each tool, in the whole conversation

	steps []step   // those of the last plan that was not refused
	ran   int      // how many of them, from the first on, a call since has run with success
	since []string // user messages after that plan
}

// step of a plan as the call that runs it: the capability as the tool, the device among the arguments.
type step struct {
	tool string
	args map[string]any
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
	calls := make(map[string]toolCall) // by id
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			if matchesAny(background, string(m.Content)) {
				continue
			}
			f.user, f.turns, f.tool = string(m.Content), 0, nil
			f.since = append(f.since, f.user)
			clear(f.calls)
		case "assistant":
			f.turns++
			for _, call := range m.ToolCalls {
				calls[call.ID] = call
				f.calls[call.Function.Name]++
				f.args[call.Function.Name] = call.Function.Arguments
			}
		case "tool":
			call := calls[m.ToolCallID]
			name := call.Function.Name
			f.tool = &result{name, string(m.Content)}
			f.results[name] = string(m.Content)
			f.answered(call, status(m.Content))
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

// answered notes what a call and its result mean for the plan.
func (f *facts) answered(call toolCall, status string) {
	if call.Function.Name == "submit_plan" {
		if steps, ok := planned(call.Function.Arguments); ok && status != "refused" && status != "failed" {
			f.steps, f.ran, f.since = steps, 0, nil
		}
		return
	}
	next, left := f.next()
	args, ok := jsonText(call.Function.Arguments).value()
	if left && ok && status == "done" && call.Function.Name == next.tool && reflect.DeepEqual(args, any(next.args)) {
		f.ran++
	}
}

// next is the step that the next call should run, if one is left.
func (f *facts) next() (step, bool) {
	if f.ran >= len(f.steps) {
		return step{}, false
	}
	return f.steps[f.ran], true
}

// planned reads the arguments of submit_plan.
func planned(raw string) ([]step, bool) {
	value, ok := jsonText(raw).value()
	if !ok {
		return nil, false
	}
	plan, _ := value.(map[string]any)
	list, _ := plan["steps"].([]any)
	steps := make([]step, len(list))
	for i := range list {
		given, _ := list[i].(map[string]any)
		capability, _ := given["capability"].(string)
		args := make(map[string]any)
		if own, ok := given["args"].(map[string]any); ok {
			maps.Copy(args, own)
		}
		args["device"] = given["device"]
		steps[i] = step{tool: strings.ReplaceAll(capability, ".", "_"), args: args}
	}
	return steps, len(steps) > 0
}

// status is the member of that name in a tool's result.
func status(content text) string {
	value, _ := jsonText(content).value()
	result, _ := value.(map[string]any)
	s, _ := result["status"].(string)
	return s
}
