// Package scriptedmodel is a model server whose every answer is written down: it speaks OpenAI's chat completions over
// HTTP and answers from a scenario in YAML. Tests and the demo run against it where nobody has a model to spend.
//
// It keeps no memory of a conversation. The answer depends on the scenario and on the request alone, so that a runtime
// that was killed and asks again gets the same answer with the same call ids, and one that went on gets the next.
package scriptedmodel

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Scenario is what the model will say. The first rule that matches a request answers it.
type Scenario struct {
	// Models are the names it answers to; "scripted" when none are given.
	Models []string `json:"models,omitempty"`
	// Vars are values for templates, as ${vars.device}; they can be set from outside.
	Vars map[string]string `json:"vars,omitempty"`
	// Background marks messages of role user that no person and no event caused, such as a block of context that the
	// runtime adds to every request: they never are the last user message, and do not start the count of turns anew.
	Background []Pattern `json:"background,omitempty"`
	Rules      []Rule    `json:"rules"`
}

// Rule answers the requests it matches.
type Rule struct {
	Name string `json:"name"`
	When When   `json:"when,omitempty"`
	Then Then   `json:"then"`
}

// When holds the conditions of a rule; all that are given must hold. Patterns are found anywhere in a text unless they
// are anchored.
type When struct {
	// User matches the last user message; its groups are ${user.1} or ${user.name}.
	User *Pattern `json:"user,omitempty"`
	// Tool matches the last tool result since the last user message; its groups are ${tool.1} or ${tool.name}.
	Tool *Pattern `json:"tool,omitempty"`
	// ToolName matches the name of the tool that gave this result.
	ToolName *Pattern `json:"toolName,omitempty"`
	// Any matches any message but the system's, the newest first; its groups are ${any.1} or ${any.name}.
	Any *Pattern `json:"any,omitempty"`
	// None matches no message but perhaps the system's.
	None *Pattern `json:"none,omitempty"`
	// SincePlan matches a user message that came after the plan submitted last, such as that it was approved.
	SincePlan *Pattern `json:"sincePlan,omitempty"`
	// Turns counts the assistant's messages since the last user message: 0, "1+" or "1-3".
	Turns *Range `json:"turns,omitempty"`
	// Calls counts, by tool, the calls since the last user message.
	Calls map[string]Range `json:"calls,omitempty"`
	// Called tools have been called at some time in the conversation, however long ago.
	Called []string `json:"called,omitempty"`
	// NotCalled tools have never been called in the conversation.
	NotCalled []string `json:"notCalled,omitempty"`
	// Tools must all be on offer.
	Tools []string `json:"tools,omitempty"`
	// Step says whether the plan submitted last has a step that no call since has run with success.
	Step *bool `json:"step,omitempty"`
	// Model matches the name of the model that is asked.
	Model *Pattern `json:"model,omitempty"`
}

// Then is an answer. Strings in it are templates; see expand.
type Then struct {
	Text  string `json:"text,omitempty"`
	Calls []Call `json:"calls,omitempty"`
	// Finish is the finish_reason; "tool_calls" or "stop" when it is not given.
	Finish string `json:"finish,omitempty"`
	Fault  Fault  `json:"fault,omitempty"`
}

// Call is one tool call of an answer.
type Call struct {
	Tool string `json:"tool"`
	// Args is an object, or a template that gives one, such as "${step.args}".
	Args any `json:"args,omitempty"`
	// Change replaces members of Args by name; with it a call can differ from the plan in one place.
	Change map[string]any `json:"change,omitempty"`
	// RawArgs is sent as it stands, instead of Args: duplicate keys, floats, broken JSON.
	RawArgs *string `json:"rawArgs,omitempty"`
}

// Fault is how an answer goes wrong. The zero value is an answer in good order.
type Fault struct {
	Status     int      `json:"status,omitempty"`     // instead of 200, with an error object
	RetryAfter int      `json:"retryAfter,omitempty"` // seconds, as a header beside Status
	Delay      Duration `json:"delay,omitempty"`      // before anything is sent
	// Times ends the fault after so many of the same request; the count is all this server remembers, and only while it
	// runs. 0 means always.
	Times              int  `json:"times,omitempty"`
	MalformedBody      bool `json:"malformedBody,omitempty"`      // the answer is no JSON
	MalformedArguments bool `json:"malformedArguments,omitempty"` // every call's arguments stop in the middle
	DuplicateIDs       bool `json:"duplicateIDs,omitempty"`       // all calls have one id
	ExtraFields        bool `json:"extraFields,omitempty"`        // members that no specification knows, outside and in the arguments
	Empty              bool `json:"empty,omitempty"`              // neither text nor calls
	NoChoices          bool `json:"noChoices,omitempty"`          // an empty list of choices
	CutAfter           int  `json:"cutAfter,omitempty"`           // the connection breaks after so many bytes of the body
	TextBytes          int  `json:"textBytes,omitempty"`          // the text is repeated up to this length
}

var (
	//go:embed scenarios/demo.yaml
	demo []byte
	//go:embed scenarios/faults.yaml
	faults []byte
)

// Demo is the scenario of the demo: reports and listings in /srv/nisse.
func Demo() (*Scenario, error) { return Parse(demo) }

// Faults is a scenario in which the person asks for what shall go wrong, as in "fault: empty answer".
func Faults() (*Scenario, error) { return Parse(faults) }

// Join makes one scenario of several. Earlier rules come first, and later variables win.
func Join(scenarios ...*Scenario) *Scenario {
	all := &Scenario{Vars: make(map[string]string)}
	for _, s := range scenarios {
		all.Models = append(all.Models, s.Models...)
		maps.Copy(all.Vars, s.Vars)
		all.Background = append(all.Background, s.Background...)
		all.Rules = append(all.Rules, s.Rules...)
	}
	slices.Sort(all.Models)
	all.Models = slices.Compact(all.Models)
	return all
}

// Load reads a scenario from a file.
func Load(path string) (*Scenario, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	s, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Parse reads a scenario and refuses one that could never work: unknown members, patterns that do not compile, rules
// that answer nothing.
func Parse(raw []byte) (*Scenario, error) {
	var s Scenario
	if err := yaml.UnmarshalStrict(raw, &s); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if len(s.Rules) == 0 {
		return nil, errors.New("scenario: it has no rules")
	}
	names := make(map[string]bool)
	for i, rule := range s.Rules {
		if rule.Name == "" {
			return nil, fmt.Errorf("scenario: rule %d has no name", i+1)
		}
		if names[rule.Name] {
			return nil, fmt.Errorf("scenario: two rules are named %q", rule.Name)
		}
		names[rule.Name] = true
		if then := rule.Then; then.Text == "" && len(then.Calls) == 0 && then.Fault == (Fault{}) {
			return nil, fmt.Errorf("scenario: rule %q answers nothing; an empty answer is fault: {empty: true}", rule.Name)
		}
		for _, call := range rule.Then.Calls {
			if call.Tool == "" {
				return nil, fmt.Errorf("scenario: rule %q calls a tool without a name", rule.Name)
			}
			if call.RawArgs != nil && (call.Args != nil || call.Change != nil) {
				return nil, fmt.Errorf("scenario: rule %q calls %s with args and rawArgs", rule.Name, call.Tool)
			}
		}
	}
	if len(s.Models) == 0 {
		s.Models = []string{"scripted"}
	}
	return &s, nil
}

// Pattern is a regular expression that YAML writes as a string.
type Pattern struct{ *regexp.Regexp }

// UnmarshalJSON compiles the expression.
func (p *Pattern) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("a pattern is a string: %w", err)
	}
	compiled, err := regexp.Compile(s)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", s, err)
	}
	p.Regexp = compiled
	return nil
}

// MarshalJSON writes the expression.
func (p Pattern) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// Range is a count: 2, "2+" or "2-4".
type Range struct{ Min, Max int }

const unbounded = int(^uint(0) >> 1)

// UnmarshalJSON reads a number or a string.
func (r *Range) UnmarshalJSON(raw []byte) error {
	s := strings.Trim(string(raw), `"`)
	low, high, bounded := strings.Cut(s, "-")
	open := strings.HasSuffix(low, "+")
	var err error
	if r.Min, err = strconv.Atoi(strings.TrimSuffix(low, "+")); err != nil {
		return fmt.Errorf("%s is no count; write 2, \"2+\" or \"2-4\"", raw)
	}
	r.Max = r.Min
	switch {
	case open:
		r.Max = unbounded
	case bounded:
		if r.Max, err = strconv.Atoi(high); err != nil || r.Max < r.Min {
			return fmt.Errorf("%s is no count; write 2, \"2+\" or \"2-4\"", raw)
		}
	}
	return nil
}

func (r Range) has(n int) bool { return r.Min <= n && n <= r.Max }

// Duration is a time.Duration that YAML writes as "30s".
type Duration struct{ time.Duration }

// UnmarshalJSON reads the form of time.ParseDuration.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("a delay is a string such as 30s: %w", err)
	}
	var err error
	if d.Duration, err = time.ParseDuration(s); err != nil {
		return fmt.Errorf("a delay is a string such as 30s: %w", err)
	}
	return nil
}
