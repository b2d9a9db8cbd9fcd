// Package tools describes what an agent may call, and checks raw arguments against that description before anything reads them.
package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/sanitize"
)

// Platform tools by name.
const (
	SubmitPlan = "submit_plan"
	AskHuman   = "ask_human"
	Finish     = "finish"
)

// MaxArguments is the most bytes of arguments that are read. A plan's cap is far below; nothing longer could ever run.
const MaxArguments = 256 << 10

// ErrArguments is wrapped when arguments are not what the tool takes. Its text is for the model.
var ErrArguments = errors.New("the arguments cannot be used")

// Tool that an agent may call.
type Tool struct {
	// Name in MCP: capabilities with _ for the dot, since model APIs refuse dots.
	Name string
	// Allowed is the name in Agent.spec.tools.allow: fs.read, submit_plan.
	Allowed     string
	Description string
	// Schema of the arguments, JSON Schema 2020-12.
	Schema json.RawMessage
	// Capability of a device; empty for platform tools.
	Capability string
}

// Of an agent: what it is allowed and this version has. A device tool exists only if the agent has a device.
func Of(a *v1alpha1.Agent) []Tool {
	all := []Tool{{Name: Finish, Allowed: Finish, Schema: finishSchema, Description: "Say that the work item is done, with a summary for people. Call it once, last."}}
	if slices.Contains(a.Spec.Tools.Allow, AskHuman) {
		all = append(all, Tool{Name: AskHuman, Allowed: AskHuman, Schema: askSchema,
			Description: "Ask the people of this work item a question. The answer comes as a message; end your turn after asking."})
	}
	devices := slices.Sorted(slices.Values(a.Spec.Devices))
	if len(devices) == 0 {
		return all
	}
	var capabilities []string
	for _, c := range manifest.Capabilities() {
		if !slices.Contains(a.Spec.Tools.Allow, c) {
			continue
		}
		capabilities = append(capabilities, c)
		all = append(all, Tool{Name: strings.ReplaceAll(c, ".", "_"), Allowed: c, Capability: c, Description: manifest.Descriptions[c], Schema: deviceSchema(c, devices)})
	}
	if slices.Contains(a.Spec.Tools.Allow, SubmitPlan) && len(capabilities) > 0 {
		all = append(all, Tool{Name: SubmitPlan, Allowed: SubmitPlan, Schema: planSchema(capabilities, devices),
			Description: "Submit the literal calls that need a person's approval, in order. Once approved, make exactly these calls, one by one. End your turn after submitting."})
	}
	return all
}

var (
	finishSchema = schema(object{"summary": text("what was done, for people", 1, 4096)}, "summary")
	askSchema    = schema(object{"question": text("the question, for people", 1, 4096)}, "question")
)

type object = map[string]any

func text(description string, minLength, maxLength int) object {
	return object{"type": "string", "description": description, "minLength": minLength, "maxLength": maxLength}
}

func enum(description string, values []string) object {
	return object{"type": "string", "description": description, "enum": values}
}

func schema(properties object, required ...string) json.RawMessage {
	b, err := canonical.Marshal(object{"type": "object", "additionalProperties": false, "required": required, "properties": properties})
	if err != nil {
		panic("tools: " + err.Error()) // made of this file's constants and object names
	}
	return b
}

func planSchema(capabilities, devices []string) json.RawMessage {
	return schema(object{
		"reason": text("why, for the people who decide", 0, 4096),
		"steps": object{"type": "array", "minItems": 1, "maxItems": v1alpha1.PlanMaxSteps, "description": "the calls, in order",
			"items": object{"type": "object", "additionalProperties": false, "required": []string{"device", "capability", "args"}, "properties": object{
				"device":     enum("device the call goes to", devices),
				"capability": enum("what is called", capabilities),
				"args":       object{"type": "object", "description": "all arguments of the capability, literally, without device"},
			}}},
	}, "reason", "steps")
}

// deviceSchema is the capability's own schema with the device beside its arguments.
func deviceSchema(capability string, devices []string) json.RawMessage {
	var s struct {
		Properties map[string]any `json:"properties"`
		Required   []string       `json:"required"`
	}
	if err := json.Unmarshal([]byte(manifest.Schemas[capability]), &s); err != nil {
		panic("tools: schema of " + capability + ": " + err.Error()) // a constant of package manifest
	}
	s.Properties["device"] = enum("device to call", devices)
	return schema(s.Properties, append([]string{"device"}, s.Required...)...)
}

// Arguments checks raw arguments against the tool's schema and returns them in canonical form.
func (t Tool) Arguments(raw json.RawMessage) (json.RawMessage, error) { return check(t.Schema, raw) }

// Capability checks the arguments of a plan's step against the capability's schema and returns them in canonical form.
func Capability(name string, raw json.RawMessage) (json.RawMessage, error) {
	s, ok := manifest.Schemas[name]
	if !ok {
		return nil, fmt.Errorf("%w: there is no capability %s", ErrArguments, sanitize.Quote(name))
	}
	return check(json.RawMessage(s), raw)
}

func check(schema, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if len(raw) > MaxArguments {
		return nil, fmt.Errorf("%w: %d bytes; at most %d are read", ErrArguments, len(raw), MaxArguments)
	}
	c, err := canonical.JSON(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrArguments, sanitize.Line(err.Error(), 500))
	}
	compiled, err := compile(schema)
	if err != nil {
		return nil, err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(c)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	if err := compiled.Validate(v); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrArguments, explain(err))
	}
	return c, nil
}

// explain keeps what is wrong and where, and drops where the schema lives.
func explain(err error) string {
	_, what, ok := strings.Cut(err.Error(), "\n")
	if !ok {
		what = err.Error()
	}
	lines := strings.Split(what, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(l), "- ")
	}
	return sanitize.Line(strings.Join(lines, "; "), 800)
}

var compiled sync.Map // schema text → *jsonschema.Schema; as many as there are agents' tool lists

func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	if s, ok := compiled.Load(string(schema)); ok {
		return s.(*jsonschema.Schema), nil
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nothing{})
	const at = "nisse:arguments"
	if err := c.AddResource(at, doc); err != nil {
		return nil, fmt.Errorf("add schema: %w", err)
	}
	s, err := c.Compile(at)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	compiled.Store(string(schema), s)
	return s, nil
}

// nothing is the loader of remote schemas: there are none.
type nothing struct{}

func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("schema %s: remote schemas are not loaded", url)
}

// SplitDevice takes the device out of a device tool's arguments. What is left, in canonical form, is the capability's.
func SplitDevice(args json.RawMessage) (device, rest string, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(args, &m); err != nil {
		return "", "", fmt.Errorf("read arguments: %w", err)
	}
	if err := json.Unmarshal(m["device"], &device); err != nil {
		return "", "", fmt.Errorf("read device: %w", err)
	}
	delete(m, "device")
	b, err := canonical.Marshal(m)
	if err != nil {
		return "", "", fmt.Errorf("write arguments: %w", err)
	}
	return device, string(b), nil
}
