package scriptedmodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// request is the part of a chat completion request that matters here.
type request struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	Tools         []tool          `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N int `json:"n"`
}

type message struct {
	Role       string     `json:"role"`
	Content    text       `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// text is a content: a string, null, or a list of parts of type text.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var plain *string
	if err := json.Unmarshal(raw, &plain); err == nil {
		if plain != nil {
			*t = text(*plain)
		}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return fmt.Errorf("content is neither a string nor a list of parts: %w", err)
	}
	var all strings.Builder
	for _, part := range parts {
		if part.Type != "text" {
			return fmt.Errorf("content has a part of type %q; this model reads text only", part.Type)
		}
		all.WriteString(part.Text)
	}
	*t = text(all.String())
	return nil
}

// choice is what tool_choice allows: one of auto, none, required, or one tool by name.
type choice struct {
	mode string
	tool string
}

// badRequest is refused with status 400, as model services refuse it.
type badRequest struct {
	param   string
	message string
}

func (e badRequest) Error() string { return e.message }

// functionName is what model services accept; dots, for one, are refused.
var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// parse reads a request and refuses what the real services refuse, so that a runtime that is right here is right there.
func parse(raw []byte) (request, choice, error) {
	var r request
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, choice{}, badRequest{"", fmt.Sprintf("We could not parse the JSON body of your request: %v", err)}
	}
	if len(r.Messages) == 0 {
		return r, choice{}, badRequest{"messages", "messages is empty"}
	}
	if r.N > 1 {
		return r, choice{}, badRequest{"n", "this model gives one choice"}
	}
	offered := make(map[string]bool)
	for i, t := range r.Tools {
		param := fmt.Sprintf("tools[%d]", i)
		switch name := t.Function.Name; {
		case t.Type != "function":
			return r, choice{}, badRequest{param, fmt.Sprintf("tool type %q is not function", t.Type)}
		case !functionName.MatchString(name):
			return r, choice{}, badRequest{param, fmt.Sprintf("function name %q does not match %s", name, functionName)}
		case offered[name]:
			return r, choice{}, badRequest{param, fmt.Sprintf("two functions are named %q", name)}
		default:
			offered[name] = true
		}
		if p := t.Function.Parameters; len(p) > 0 && !strings.HasPrefix(strings.TrimSpace(string(p)), "{") {
			return r, choice{}, badRequest{param, "parameters is not an object"}
		}
	}
	c, err := parseChoice(r.ToolChoice, offered)
	if err != nil {
		return r, choice{}, err
	}
	return r, c, checkOrder(r.Messages)
}

func parseChoice(raw json.RawMessage, offered map[string]bool) (choice, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return choice{mode: "auto"}, nil
	}
	var mode string
	if err := json.Unmarshal(raw, &mode); err == nil {
		if !slices.Contains([]string{"auto", "none", "required"}, mode) {
			return choice{}, badRequest{"tool_choice", fmt.Sprintf("tool_choice %q is not auto, none or required", mode)}
		}
		if mode == "required" && len(offered) == 0 {
			return choice{}, badRequest{"tool_choice", "tool_choice required without tools"}
		}
		return choice{mode: mode}, nil
	}
	var named toolCall
	if err := json.Unmarshal(raw, &named); err != nil || !offered[named.Function.Name] {
		return choice{}, badRequest{"tool_choice", fmt.Sprintf("tool_choice names the function %q, which is not among the tools", named.Function.Name)}
	}
	return choice{mode: "required", tool: named.Function.Name}, nil
}

// checkOrder wants every tool call answered once, right after the message that made it, and no answer without a call.
func checkOrder(messages []message) error {
	var open []string // ids still to be answered
	for i, m := range messages {
		param := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return badRequest{param, fmt.Sprintf("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. Missing: %s", strings.Join(open, ", "))}
		}
		switch m.Role {
		case "system", "developer", "user":
		case "assistant":
			for _, call := range m.ToolCalls {
				if call.ID == "" || call.Type != "function" {
					return badRequest{param, "a tool call needs an id and the type function"}
				}
				if !functionName.MatchString(call.Function.Name) {
					return badRequest{param, fmt.Sprintf("function name %q does not match %s", call.Function.Name, functionName)}
				}
				if slices.Contains(open, call.ID) {
					return badRequest{param, fmt.Sprintf("two tool calls have the id %q", call.ID)}
				}
				open = append(open, call.ID)
			}
		case "tool":
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return badRequest{param, fmt.Sprintf("the tool message for %q answers no tool call of the message before it", m.ToolCallID)}
			}
			open = slices.Delete(open, at, at+1)
		default:
			return badRequest{param, fmt.Sprintf("role %q is unknown", m.Role)}
		}
	}
	if len(open) > 0 {
		return badRequest{"messages", fmt.Sprintf("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. Missing: %s", strings.Join(open, ", "))}
	}
	return nil
}
