package scriptedmodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// scope is what templates can name:
//
//	${vars.NAME}              a variable of the scenario
//	${user.1} ${tool.1} ${any.1}   groups of the rule's patterns, by number or name; 0 is the whole match
//	${call.TOOL.…}            the arguments of the last call of a tool
//	${result.TOOL} or ${result.TOOL.…}   the last result of a tool: its text, or a place in it if it is JSON
//	${last} or ${last.…}      the last tool result since the last user message
//	${step.tool} ${step.args.…}    the next step of the plan submitted last
//	${offered.TOOL.…}         the schema of a tool on offer
//	${filler.N}               a text of N bytes
//	${turns} ${model}         as in When
//
// A place is reached through the names of members and the numbers of elements, parted by dots; * takes every element.
func scope(s *Scenario, f facts, groups map[string]any) map[string]any {
	vars, call, results, offered := make(map[string]any), make(map[string]any), make(map[string]any), make(map[string]any)
	for name, value := range s.Vars {
		vars[name] = value
	}
	for name, raw := range f.args {
		if args, ok := jsonText(raw).value(); ok {
			call[name] = args
		}
	}
	for name, raw := range f.results {
		results[name] = jsonText(raw)
	}
	for name, raw := range f.offered {
		offered[name] = jsonText(raw)
	}
	all := map[string]any{
		"vars": vars, "call": call, "result": results, "offered": offered, "filler": filler{}, "turns": f.turns, "model": f.model,
	}
	if f.tool != nil {
		all["last"] = jsonText(f.tool.content)
	}
	if next, left := f.next(); left {
		all["step"] = map[string]any{"tool": next.tool, "args": next.args}
	}
	maps.Copy(all, groups)
	return all
}

// jsonText is a text that can be looked into if it is JSON, or has JSON in it: a runtime may frame results as data.
type jsonText string

func (t jsonText) value() (any, bool) {
	for _, text := range []string{string(t), fromBrace(string(t))} {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber() // a number must come out as it went in
		var value any
		if decoder.Decode(&value) == nil {
			return value, true
		}
	}
	return nil, false
}

func fromBrace(s string) string { return s[max(0, strings.IndexByte(s, '{')):] }

// filler gives texts of any length, for what is too large.
type filler struct{}

const maxFiller = 8 << 20

// expand fills the templates in a value. A string that is one template and nothing else becomes the value that the
// template names, with its type; elsewhere values are written into the text.
func expand(value any, scope map[string]any) (any, error) {
	switch v := value.(type) {
	case string:
		return expandString(v, scope)
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			expanded, err := expand(member, scope)
			if err != nil {
				return nil, err
			}
			out[name] = expanded
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			expanded, err := expand(element, scope)
			if err != nil {
				return nil, err
			}
			out[i] = expanded
		}
		return out, nil
	default:
		return value, nil
	}
}

// expandString fills ${…}; ${a|b} takes b where there is no a, and $${ stands for ${ itself.
func expandString(s string, scope map[string]any) (any, error) {
	var out strings.Builder
	for rest := s; ; {
		at := strings.Index(rest, "${")
		if at < 0 {
			out.WriteString(rest)
			return out.String(), nil
		}
		if at > 0 && rest[at-1] == '$' {
			out.WriteString(rest[:at-1] + "${")
			rest = rest[at+2:]
			continue
		}
		end := strings.IndexByte(rest[at:], '}')
		if end < 0 {
			return nil, fmt.Errorf("the template %q is not closed", rest[at:])
		}
		value, err := lookupFirst(rest[at+2:at+end], scope)
		if err != nil {
			return nil, err
		}
		if at == 0 && end == len(rest)-1 && rest == s {
			if text, ok := value.(jsonText); ok {
				return string(text), nil
			}
			return value, nil
		}
		out.WriteString(rest[:at] + inText(value))
		rest = rest[at+end+1:]
	}
}

func lookupFirst(alternatives string, scope map[string]any) (any, error) {
	for place := range strings.SplitSeq(alternatives, "|") {
		if value, found := lookup(strings.TrimSpace(place), scope); found {
			return value, nil
		}
	}
	return nil, fmt.Errorf("there is nothing at ${%s}", alternatives)
}

func lookup(place string, scope map[string]any) (any, bool) {
	return descend(scope, strings.Split(place, "."))
}

func descend(value any, parts []string) (any, bool) {
	if len(parts) == 0 {
		return value, true
	}
	part, rest := parts[0], parts[1:]
	if text, ok := value.(jsonText); ok {
		if value, ok = text.value(); !ok {
			return nil, false
		}
	}
	switch v := value.(type) {
	case map[string]any:
		member, found := v[part]
		if !found {
			return nil, false
		}
		return descend(member, rest)
	case []any:
		if part == "*" {
			each := make([]any, len(v))
			for i := range v {
				var found bool
				if each[i], found = descend(v[i], rest); !found {
					return nil, false
				}
			}
			return each, true
		}
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || i >= len(v) {
			return nil, false
		}
		return descend(v[i], rest)
	case filler:
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > maxFiller || len(rest) > 0 {
			return nil, false
		}
		return strings.Repeat("x", n), true
	default:
		return nil, false
	}
}

// inText writes a value into a text: strings as they are, lists with commas, all else as JSON.
func inText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case jsonText:
		return string(v)
	case []any:
		elements := make([]string, len(v))
		for i, element := range v {
			elements[i] = inText(element)
		}
		return strings.Join(elements, ", ")
	}
	raw, err := marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}

// marshal writes JSON as models do, with < and & as they are.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
