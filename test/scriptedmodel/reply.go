package scriptedmodel

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// created stands for the time of every answer: the same request must get the same bytes.
const created = 1767225600 // 2026-01-01T00:00:00Z

// pieceBytes is about how much of a text or of arguments one event of a stream carries.
const pieceBytes = 48

type object = map[string]any

// whole is the body of an answer that is not streamed.
func whole(a answer, r request) ([]byte, error) {
	choices := []object{}
	if !a.Fault.NoChoices {
		choices = append(choices, object{"index": 0, "message": spoken(a), "finish_reason": a.Finish, "logprobs": nil})
	}
	body := object{
		"id": "chatcmpl-" + a.Key, "object": "chat.completion", "created": created, "model": r.Model,
		"choices": choices, "usage": usage(a, r),
	}
	if a.Fault.ExtraFields {
		body["reasoning_cache_hint"] = object{"warm": true}
	}
	raw, err := marshal(body)
	if err == nil && a.Fault.MalformedBody {
		raw = raw[:len(raw)/2]
	}
	return raw, err
}

func spoken(a answer) object {
	m := object{"role": "assistant", "content": a.Text, "refusal": nil}
	if len(a.Calls) > 0 {
		calls := make([]object, len(a.Calls))
		for i, call := range a.Calls {
			calls[i] = object{"id": call.ID, "type": "function", "function": object{"name": call.Tool, "arguments": call.Args}}
		}
		m["tool_calls"] = calls
		if a.Text == "" {
			m["content"] = nil
		}
	}
	if a.Fault.ExtraFields {
		m["mood"] = "unspecified"
	}
	return m
}

// streamed is the body of an answer as server-sent events.
func streamed(a answer, r request) ([]byte, error) {
	var b strings.Builder
	var failed error
	send := func(choices []object, usage any) {
		chunk := object{
			"id": "chatcmpl-" + a.Key, "object": "chat.completion.chunk", "created": created, "model": r.Model, "choices": choices,
		}
		if r.StreamOptions.IncludeUsage {
			chunk["usage"] = usage
		}
		raw, err := marshal(chunk)
		if err != nil {
			failed = err
		}
		if a.Fault.MalformedBody {
			raw = raw[:len(raw)/2]
		}
		fmt.Fprintf(&b, "data: %s\n\n", raw)
	}
	delta := func(d object, finish any) {
		send([]object{{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	if !a.Fault.NoChoices {
		opening := object{"role": "assistant", "content": ""}
		if a.Fault.ExtraFields {
			opening["mood"] = "unspecified"
		}
		delta(opening, nil)
		for _, piece := range pieces(a.Text) {
			delta(object{"content": piece}, nil)
		}
		for i, call := range a.Calls {
			delta(object{"tool_calls": []object{{
				"index": i, "id": call.ID, "type": "function", "function": object{"name": call.Tool, "arguments": ""},
			}}}, nil)
			for _, piece := range pieces(call.Args) {
				delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": piece}}}}, nil)
			}
		}
		delta(object{}, a.Finish)
	}
	if r.StreamOptions.IncludeUsage {
		send([]object{}, usage(a, r))
	}
	b.WriteString("data: [DONE]\n\n")
	return []byte(b.String()), failed
}

// pieces cuts a text between runes; large texts into fewer, larger pieces.
func pieces(s string) []string {
	size := max(pieceBytes, len(s)/1000)
	var all []string
	for len(s) > size {
		at := size
		for at > 0 && !utf8.RuneStart(s[at]) {
			at--
		}
		all = append(all, s[:at])
		s = s[at:]
	}
	if s != "" {
		all = append(all, s)
	}
	return all
}

// usage takes four bytes for a token, which is near enough for counters to move.
func usage(a answer, r request) object {
	prompt, completion := 0, len(a.Text)
	for _, m := range r.Messages {
		prompt += len(m.Content)
		for _, call := range m.ToolCalls {
			prompt += len(call.Function.Arguments)
		}
	}
	for _, call := range a.Calls {
		completion += len(call.Args)
	}
	prompt, completion = prompt/4+1, completion/4+1
	return object{"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
}

// spoil applies the faults that change an answer's content. What they do to the transport is the server's part.
func spoil(a answer) answer {
	f := a.Fault
	if f.Empty {
		a.Text, a.Calls, a.Finish = "", nil, "stop"
	}
	calls := make([]madeCall, len(a.Calls))
	for i, call := range a.Calls {
		if f.DuplicateIDs {
			call.ID = a.Calls[0].ID
		}
		if f.ExtraFields {
			var args object
			if json.Unmarshal([]byte(call.Args), &args) == nil {
				args["confidence"] = "high"
				if raw, err := marshal(args); err == nil {
					call.Args = string(raw)
				}
			}
		}
		if f.MalformedArguments {
			call.Args = call.Args[:len(call.Args)/2]
		}
		calls[i] = call
	}
	a.Calls = calls
	return a
}

// problem is the body of an error, in the shape that clients of OpenAI know.
func problem(kind, param, message string) []byte {
	var where any
	if param != "" {
		where = param
	}
	raw, err := marshal(object{"error": object{"message": message, "type": kind, "param": where, "code": nil}})
	if err != nil { // strings only
		panic(err)
	}
	return raw
}
