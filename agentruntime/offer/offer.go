// Package offer is what tools a model may call now, and the judge of whether a call is written as its tool wants it. The broker
// judges again; this only spares it, and the person who reads along, what can never work.
package offer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/model"
)

// Set of tools on offer.
type Set struct {
	tools   []model.Offer
	schemas map[string]*jsonschema.Schema
}

// name that every model API takes.
var name = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// remote schemas are never loaded: a schema is data from another process.
type remote struct{}

func (remote) Load(url string) (any, error) {
	return nil, fmt.Errorf("schema %s is not part of the tool's own; remote schemas are not loaded", url)
}

// New reads the broker's list. Tools that no model can be offered are left out and named in the error; the set is good without them.
func New(list []doorclient.Tool) (*Set, error) {
	s := &Set{schemas: map[string]*jsonschema.Schema{}}
	var errs []error
	for _, t := range list {
		if !name.MatchString(t.Name) || s.Has(t.Name) {
			errs = append(errs, fmt.Errorf("tool %q is not offered: its name is taken, or no model API takes it", t.Name))
			continue
		}
		schema, err := compile(t.Schema)
		if err != nil {
			errs = append(errs, fmt.Errorf("tool %s is not offered: %w", t.Name, err))
			continue
		}
		s.schemas[t.Name] = schema
		s.tools = append(s.tools, model.Offer{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	slices.SortFunc(s.tools, func(a, b model.Offer) int { return strings.Compare(a.Name, b.Name) }) // the same request for the same tools
	return s, errors.Join(errs...)
}

func compile(raw []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("read its schema: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("its schema is no object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(remote{})
	if err := c.AddResource("urn:nisse:tool", doc); err != nil {
		return nil, fmt.Errorf("read its schema: %w", err)
	}
	schema, err := c.Compile("urn:nisse:tool")
	if err != nil {
		return nil, fmt.Errorf("read its schema: %w", err)
	}
	return schema, nil
}

// Tools in the order of their names.
func (s *Set) Tools() []model.Offer { return s.tools }

// Has tells whether a tool is on offer.
func (s *Set) Has(tool string) bool { _, ok := s.schemas[tool]; return ok }

// Check tells a model what is wrong with a call, so that it can write a better one.
func (s *Set) Check(tool, args string) error {
	schema, ok := s.schemas[tool]
	if !ok {
		names := make([]string, 0, len(s.tools))
		for _, t := range s.tools {
			names = append(names, t.Name)
		}
		return fmt.Errorf("there is no tool %q; there are: %s", tool, strings.Join(names, ", "))
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(args))
	if err != nil {
		return fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if _, ok := v.(map[string]any); !ok {
		return errors.New("the arguments are not a JSON object")
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(v); errors.As(err, &invalid) {
		return fmt.Errorf("the arguments do not fit the tool: %s", strings.Join(leaves(invalid), "; "))
	} else if err != nil {
		return fmt.Errorf("the arguments do not fit the tool: %w", err)
	}
	return nil
}

// leaves are the places that are wrong; the levels above only say that something below is.
func leaves(e *jsonschema.ValidationError) []string {
	if len(e.Causes) == 0 {
		at := "/" + strings.Join(e.InstanceLocation, "/")
		return []string{at + ": " + e.ErrorKind.LocalizedString(message.NewPrinter(language.English))}
	}
	var out []string
	for _, c := range e.Causes {
		out = append(out, leaves(c)...)
	}
	return out[:min(len(out), 8)]
}
