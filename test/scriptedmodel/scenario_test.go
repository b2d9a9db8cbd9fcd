package scriptedmodel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, yaml, says string }{
		{"no YAML", `{`, "scenario"},
		{"no rules", `{}`, "no rules"},
		{"unknown member", `{rules: [{name: a, when: {usr: x}, then: {text: y}}]}`, "usr"},
		{"a rule without name", `{rules: [{then: {text: y}}]}`, "rule 1 has no name"},
		{"a name twice", `{rules: [{name: a, then: {text: y}}, {name: a, then: {text: y}}]}`, `named "a"`},
		{"no answer", `{rules: [{name: a, then: {}}]}`, `rule "a" answers nothing`},
		{"bad pattern", `{rules: [{name: a, when: {user: "("}, then: {text: y}}]}`, `pattern "("`},
		{"bad count", `{rules: [{name: a, when: {turns: "4-2"}, then: {text: y}}]}`, "is no count"},
		{"bad delay", `{rules: [{name: a, then: {fault: {delay: 3}}}]}`, "a delay is a string"},
		{"call without tool", `{rules: [{name: a, then: {calls: [{args: {}}]}}]}`, "without a name"},
		{"two kinds of arguments", `{rules: [{name: a, then: {calls: [{tool: x, args: {}, rawArgs: "{}"}]}}]}`, "args and rawArgs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v does not say %q", err, tc.says)
			}
		})
	}
}

func TestRange(t *testing.T) {
	for in, want := range map[string]Range{`0`: {0, 0}, `"2"`: {2, 2}, `"2+"`: {2, unbounded}, `"2-4"`: {2, 4}} {
		var got Range
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", in, got, err, want)
		}
	}
}

func TestJoin(t *testing.T) {
	one := &Scenario{Models: []string{"b"}, Vars: map[string]string{"device": "x"}, Rules: []Rule{{Name: "1"}}}
	two := &Scenario{Models: []string{"a", "b"}, Vars: map[string]string{"device": "y"}, Rules: []Rule{{Name: "2"}}}
	want := &Scenario{Models: []string{"a", "b"}, Vars: map[string]string{"device": "y"}, Rules: []Rule{{Name: "1"}, {Name: "2"}}}
	if diff := cmp.Diff(want, Join(one, two)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// messages reads "role: text" lines; "call: TOOL ARGS" is an assistant that calls, and answers to it follow as "tool: …".
func messages(lines ...string) []message {
	var all []message
	for _, line := range lines {
		role, content, _ := strings.Cut(line, ": ")
		m := message{Role: role, Content: text(content)}
		switch role {
		case "call":
			call := toolCall{ID: content, Type: "function"}
			call.Function.Name, call.Function.Arguments, _ = strings.Cut(content, " ")
			m = message{Role: "assistant", ToolCalls: []toolCall{call}}
		case "tool":
			m.ToolCallID = all[len(all)-1].ToolCalls[0].ID
		}
		all = append(all, m)
	}
	return all
}

const (
	planCall = `call: submit_plan {"steps":[{"device":"d","capability":"fs.write","args":{"path":"/a"}}]}`
	stepCall = `call: fs_write {"path":"/a","device":"d"}`
)

func TestMatch(t *testing.T) {
	talk := messages("system: be kind", "user: look at /srv", `call: fs_list {"path":"/srv"}`, `tool: {"status":"done"}`, "user: [context] Tuesday")
	for _, tc := range []struct {
		name, when string
		messages   []message
		want       bool
	}{
		{"nothing asked", `{}`, talk, true},
		{"the last user message", `{user: "look at"}`, talk, true},
		{"not an earlier one", `{user: "look at"}`, append(talk, messages("user: stop")...), false},
		{"context is no user message", `{user: "Tuesday"}`, talk, false},
		{"but any message", `{any: "Tuesday"}`, talk, true},
		{"none", `{none: "Tuesday"}`, talk, false},
		{"a turn was taken", `{turns: 1}`, talk, true},
		{"words start the count anew", `{turns: 0}`, append(talk, messages("user: and?")...), true},
		{"the last tool result", `{tool: "done", toolName: "^fs_list$"}`, talk, true},
		{"of another tool", `{toolName: "^exec$"}`, talk, false},
		{"words make a result old", `{tool: "done"}`, append(talk, messages("user: and?")...), false},
		{"calls", `{calls: {fs_list: 1, exec: 0}}`, talk, true},
		{"too many calls", `{calls: {fs_list: "2+"}}`, talk, false},
		{"called at some time", `{called: [fs_list]}`, append(talk, messages("user: and?")...), true},
		{"never called", `{called: [exec]}`, talk, false},
		{"tools on offer", `{tools: [fs_list]}`, talk, true},
		{"a tool that is not", `{tools: [exec]}`, talk, false},
		{"the model", `{model: "^plan"}`, talk, false},
		{"never called, and wanted so", `{notCalled: [exec]}`, talk, true},
		{"called, and not wanted", `{notCalled: [fs_list]}`, talk, false},
		{"the system's words do not count", `{any: "be kind"}`, talk, false},
		{"no plan, no step", `{step: true}`, talk, false},
		{"a plan, and its step", `{step: true}`, messages("user: go", planCall, `tool: {"status":"done"}`), true},
		{"a refused plan is none", `{step: true}`, messages("user: go", planCall, `tool: {"status":"refused"}`), false},
		{"a step that ran", `{step: true}`, messages("user: go", planCall, `tool: {"status":"done"}`, stepCall, `tool: {"status":"done"}`), false},
		{"a step that was halted", `{step: true}`, messages("user: go", planCall, `tool: {"status":"done"}`, stepCall, `tool: {"status":"halted"}`), true},
		{"another call ran", `{step: true}`, messages("user: go", planCall, `tool: {"status":"done"}`, `call: fs_write {"path":"/b","device":"d"}`, `tool: {"status":"done"}`), true},
		{"approved since", `{sincePlan: ok}`, messages("user: go", planCall, `tool: {"status":"done"}`, "user: ok", "user: restarted"), true},
		{"approved before", `{sincePlan: ok}`, messages("user: ok", planCall, `tool: {"status":"done"}`), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Parse([]byte(`{background: ['^\[context\]'], rules: [{name: a, when: ` + tc.when + `, then: {text: y}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			r := request{Model: "exec-1", Messages: tc.messages, Tools: []tool{{Type: "function"}}}
			r.Tools[0].Function.Name = "fs_list"
			if got := decide(s, r, choice{mode: "auto"}).Rule == "a"; got != tc.want {
				t.Errorf("matched %v, want %v", got, tc.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	scope := map[string]any{
		"word":   "x",
		"count":  json.Number("9007199254740993"),
		"result": map[string]any{"exec": jsonText(`data: {"out":"a <b>","list":[{"n":1},{"n":2}]}`), "broken": jsonText(`{"out":`)},
		"filler": filler{},
	}
	for _, tc := range []struct {
		name     string
		template any
		want     any
		fails    bool
	}{
		{name: "plain", template: "no template", want: "no template"},
		{name: "in a text", template: "an ${word} and ${count}", want: "an x and 9007199254740993"},
		{name: "a whole value keeps its type", template: "${count}", want: json.Number("9007199254740993")},
		{name: "inside structures", template: map[string]any{"a": []any{"${word}", true}}, want: map[string]any{"a": []any{"x", true}}},
		{name: "a result as text", template: "${result.broken}", want: `{"out":`},
		{name: "a place in a framed result", template: "${result.exec.out}", want: "a <b>"},
		{name: "an element", template: "${result.exec.list.1.n}", want: json.Number("2")},
		{name: "every element", template: "all: ${result.exec.list.*.n}", want: "all: 1, 2"},
		{name: "the first that is there", template: "${nowhere|result.broken.out|word}", want: "x"},
		{name: "escaped", template: "$${word} is ${word}", want: "${word} is x"},
		{name: "filler", template: "${filler.3}", want: "xxx"},
		{name: "nothing there", template: "${nowhere.at.all}", fails: true},
		{name: "not JSON", template: "${result.broken.out}", fails: true},
		{name: "past the end", template: "${result.exec.list.2.n}", fails: true},
		{name: "not closed", template: "${word", fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := expand(tc.template, scope)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && !tc.fails {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestARuleThatCannotBeFollowedSaysSo(t *testing.T) {
	s, err := Parse([]byte(`{rules: [{name: a, then: {calls: [{tool: fs_write, args: {content: "${result.exec}"}}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := decide(s, request{Messages: messages("user: go")}, choice{mode: "auto"})
	if len(got.Calls) != 0 || !strings.Contains(got.Text, `rule "a"`) || !strings.Contains(got.Problem, "nothing at ${result.exec}") {
		t.Errorf("%+v", got)
	}
}

// The deviation that provokes a halt is one character, whatever the value.
func TestChangeSeesTheValueBefore(t *testing.T) {
	s, err := Parse([]byte(`{rules: [{name: a, then: {calls: [{tool: t, args: {path: /a, times: 1}, change: {path: "${was}b"}}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := decide(s, request{Messages: messages("user: go")}, choice{mode: "auto"}).Calls[0].Args; got != `{"path":"/ab","times":1}` {
		t.Errorf("arguments %s", got)
	}
}
