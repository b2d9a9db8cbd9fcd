package scriptedmodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// answer is what the model says to one request.
type answer struct {
	Rule string // the rule that gave it; empty when none did
	// Problem says why the rule could not be followed; the text says so too.
	Problem string
	Text    string
	Calls   []madeCall
	Finish  string
	Fault   Fault
	// Key is the same for the same conversation, whoever asks how often. Ids are made from it.
	Key string
}

type madeCall struct {
	ID   string
	Tool string
	Args string
}

// decide finds the answer to a request. It reads nothing but its arguments.
func decide(s *Scenario, r request, c choice) answer {
	f := observe(r, s.Background)
	key := requestKey(r)
	for _, rule := range s.Rules {
		if !allowed(rule.Then, c) {
			continue
		}
		groups, matched := match(rule.When, f)
		if !matched {
			continue
		}
		return follow(rule, scope(s, f, groups), key)
	}
	return answer{
		Key:    key,
		Finish: "stop",
		Text:   fmt.Sprintf("I am a scripted model, and my script has no answer to this: %s", brief(f)),
	}
}

// requestKey leaves out the tools: a runtime may list them in another order when it asks again.
func requestKey(r request) string {
	raw, err := json.Marshal(struct {
		Model    string
		Messages []message
	}{r.Model, r.Messages})
	if err != nil { // strings only
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}

// allowed says whether tool_choice lets the model answer like this.
func allowed(then Then, c choice) bool {
	switch c.mode {
	case "none":
		return len(then.Calls) == 0
	case "required":
		if len(then.Calls) == 0 {
			return false
		}
		for _, call := range then.Calls {
			if c.tool != "" && call.Tool != c.tool {
				return false
			}
		}
	}
	return true
}

// match returns the groups that the patterns caught.
func match(w When, f facts) (groups map[string]any, matched bool) {
	groups = make(map[string]any)
	catch := func(name string, p *Pattern, s string) bool {
		if p == nil {
			return true
		}
		found := p.FindStringSubmatch(s)
		if found == nil {
			return false
		}
		groups[name] = named(p.Regexp, found)
		return true
	}
	if (w.Tool != nil || w.ToolName != nil) && f.tool == nil {
		return nil, false
	}
	last := result{}
	if f.tool != nil {
		last = *f.tool
	}
	for _, name := range w.Tools {
		if _, offered := f.offered[name]; !offered {
			return nil, false
		}
	}
	for _, name := range w.Called {
		if _, ever := f.args[name]; !ever {
			return nil, false
		}
	}
	for _, name := range w.NotCalled {
		if _, ever := f.args[name]; ever {
			return nil, false
		}
	}
	for name, count := range w.Calls {
		if !count.has(f.calls[name]) {
			return nil, false
		}
	}
	if w.Turns != nil && !w.Turns.has(f.turns) {
		return nil, false
	}
	if w.Step != nil {
		if _, left := f.next(); left != *w.Step {
			return nil, false
		}
	}
	if w.ToolName != nil && !w.ToolName.MatchString(last.name) {
		return nil, false
	}
	if w.Model != nil && !w.Model.MatchString(f.model) {
		return nil, false
	}
	if w.None != nil && slices.ContainsFunc(f.messages, func(m message) bool {
		return spokenIn(m) && w.None.MatchString(string(m.Content))
	}) {
		return nil, false
	}
	if w.SincePlan != nil && (len(f.steps) == 0 || !slices.ContainsFunc(f.since, w.SincePlan.MatchString)) {
		return nil, false
	}
	if w.Any != nil && !catchAny(catch, w.Any, f.messages) {
		return nil, false
	}
	return groups, catch("user", w.User, f.user) && catch("tool", w.Tool, last.content)
}

func catchAny(catch func(string, *Pattern, string) bool, p *Pattern, messages []message) bool {
	for i := len(messages) - 1; i >= 0; i-- {
		if spokenIn(messages[i]) && catch("any", p, string(messages[i].Content)) {
			return true
		}
	}
	return false
}

// spokenIn leaves out the system's messages: instructions may name every word there is.
func spokenIn(m message) bool { return m.Role != "system" && m.Role != "developer" }

// named gives the groups of a match by number and, where they have one, by name.
func named(p *regexp.Regexp, found []string) map[string]any {
	groups := make(map[string]any)
	for i, name := range p.SubexpNames() {
		groups[fmt.Sprint(i)] = found[i]
		if name != "" {
			groups[name] = found[i]
		}
	}
	return groups
}

// follow turns a rule into an answer.
func follow(rule Rule, scope map[string]any, key string) answer {
	a := answer{Rule: rule.Name, Key: key, Finish: rule.Then.Finish, Fault: rule.Then.Fault}
	problem := func(err error) answer {
		return answer{
			Rule: rule.Name, Key: key, Finish: "stop", Problem: err.Error(),
			Text: fmt.Sprintf("I am a scripted model, and cannot follow rule %q of my script: %v", rule.Name, err),
		}
	}
	said, err := expandString(rule.Then.Text, scope)
	if err != nil {
		return problem(err)
	}
	a.Text = inText(said)
	for i, call := range rule.Then.Calls {
		made, err := makeCall(call, scope)
		if err != nil {
			return problem(fmt.Errorf("the call of %s: %w", call.Tool, err))
		}
		made.ID = fmt.Sprintf("call_%s_%d", key, i)
		a.Calls = append(a.Calls, made)
	}
	if n := a.Fault.TextBytes; n > 0 {
		if a.Text == "" {
			a.Text = "nisse "
		}
		a.Text = strings.Repeat(a.Text, n/len(a.Text)+1)[:n]
	}
	if a.Finish == "" {
		a.Finish = "stop"
		if len(a.Calls) > 0 {
			a.Finish = "tool_calls"
		}
	}
	return a
}

func makeCall(call Call, scope map[string]any) (madeCall, error) {
	name, err := expandString(call.Tool, scope)
	if err != nil {
		return madeCall{}, err
	}
	made := madeCall{Tool: inText(name)}
	if call.RawArgs != nil {
		raw, err := expandString(*call.RawArgs, scope)
		made.Args = inText(raw)
		return made, err
	}
	value, err := expand(call.Args, scope)
	if err != nil {
		return madeCall{}, err
	}
	args := make(map[string]any)
	if value != nil {
		given, ok := value.(map[string]any)
		if !ok {
			return madeCall{}, fmt.Errorf("args is no object but %s", inText(value))
		}
		maps.Copy(args, given)
	}
	for member, change := range call.Change {
		// ${was} is the member's value before the change.
		inner := maps.Clone(scope)
		inner["was"] = args[member]
		if args[member], err = expand(change, inner); err != nil {
			return madeCall{}, err
		}
	}
	raw, err := marshal(args)
	made.Args = string(raw)
	return made, err
}

// brief says which message the script has no answer to.
func brief(f facts) string {
	const most = 200
	shown := fmt.Sprintf("%q after %d answers", cut(f.user, most), f.turns)
	if f.tool != nil {
		shown += fmt.Sprintf(", when %s had given %q", f.tool.name, cut(f.tool.content, most))
	}
	return shown
}

func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
