package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/test/scriptedmodel"
)

func asking(t *testing.T, h http.HandlerFunc, cfg doors.Model, token string) *model.OpenAI {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg.URL = s.URL + "/v1"
	path := filepath.Join(t.TempDir(), "token")
	if token != "" {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return model.NewOpenAI(cfg, path)
}

func reply(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"m-1","choices":[{"index":0,"finish_reason":"stop","message":%s}]}`, message)
	}
}

func hello() model.Request {
	return model.Request{Messages: []model.Message{{Role: model.User, Text: "hi"}}}
}

func TestTheRequestOnTheWire(t *testing.T) {
	var got map[string]any
	var path, auth string
	temperature, most := int32(200), int32(512)
	m := asking(t, func(w http.ResponseWriter, r *http.Request) {
		path, auth = r.URL.Path, r.Header.Get("Authorization")
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		reply(`{"role":"assistant","content":"ok"}`)(w, r)
	}, doors.Model{Model: "m", TemperatureMilli: &temperature, MaxTokens: &most}, "sk-1")
	t.Setenv("OPENAI_API_KEY", "sk-of-someone-else")
	_, err := m.Ask(t.Context(), model.Request{
		Messages: []model.Message{
			{Role: model.System, Text: "rules"}, {Role: model.User, Text: "hi"},
			{Role: model.Assistant, Calls: []model.Call{{ID: "call_1", Tool: "fs.read", Args: `{"path":`}}},
			{Role: model.Tool, CallID: "call_1", Text: "no"},
		},
		Tools: []model.Offer{{Name: "fs_read", Description: "reads", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"model": "m", "temperature": 0.2, "max_tokens": 512.0,
		"messages": []any{
			map[string]any{"role": "system", "content": "rules"}, map[string]any{"role": "user", "content": "hi"},
			map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"id": "call_1", "type": "function", "function": map[string]any{"name": "fs_read", "arguments": "{}"}}}},
			map[string]any{"role": "tool", "tool_call_id": "call_1", "content": "no"},
		},
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "fs_read", "description": "reads",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if path != "/v1/chat/completions" || auth != "Bearer sk-1" {
		t.Errorf("asked %s with %q", path, auth)
	}
}

func TestWithoutAKeyNoneIsSent(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-of-someone-else")
	m := asking(t, func(w http.ResponseWriter, r *http.Request) {
		if h := r.Header.Get("Authorization"); h != "" {
			t.Errorf("sent %q", h)
		}
		reply(`{"content":"ok"}`)(w, r)
	}, doors.Model{Model: "m"}, "")
	if _, err := m.Ask(t.Context(), hello()); err != nil {
		t.Fatal(err)
	}
}

func TestWhatAnAnswerBecomes(t *testing.T) {
	plain := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}
	}
	tests := map[string]struct {
		h    http.HandlerFunc
		want model.Answer
	}{
		"words":           {reply(`{"content":"<think>hm</think>Hello."}`), model.Answer{Text: "Hello.", Reasoning: "hm", Model: "m-1"}},
		"reasoning apart": {reply(`{"content":"Hello.","reasoning_content":"hm"}`), model.Answer{Text: "Hello.", Reasoning: "hm", Model: "m-1"}},
		"two calls": {reply(`{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}},{"id":"a","type":"function","function":{"name":"y","arguments":"{"}}]}`),
			model.Answer{Model: "m-1", Calls: []model.Call{{ID: "a", Tool: "x", Args: "{}"}, {ID: "a", Tool: "y", Args: "{"}}}},
		"empty":       {reply(`{"content":""}`), model.Answer{Model: "m-1"}},
		"cut short":   {plain(`{"model":"m-1","choices":[{"finish_reason":"length","message":{"content":"Hel"}}]}`), model.Answer{Text: "Hel", Model: "m-1", Problem: "your answer was cut at the limit of its length; answer more briefly"}},
		"no choices":  {plain(`{"model":"m-1","choices":[]}`), model.Answer{Model: "m", Problem: "your answer held no choice", Garbled: true}},
		"no JSON":     {plain(`<html>`), model.Answer{Model: "m", Problem: "your answer did not arrive in a form that can be read", Garbled: true}},
		"not as JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") }, model.Answer{Model: "m", Problem: "your answer did not arrive in a form that can be read", Garbled: true}},
		"far too long": {func(w http.ResponseWriter, r *http.Request) {
			reply(`{"content":"`+strings.Repeat("x", 9<<20)+`"}`)(w, r)
		}, model.Answer{Model: "m", Problem: "your answer was far too long"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := asking(t, tt.h, doors.Model{Model: "m"}, "k").Ask(t.Context(), hello())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestErrorsAreSortedByWhatToDo(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := map[string]struct {
		h     http.HandlerFunc
		kind  model.Kind
		after time.Duration
		says  string
	}{
		"rate limit":        {status(429, `{"error":{"message":"slow down"}}`), model.Passing, 7 * time.Second, "slow down"},
		"proxy's page":      {status(502, "<html>bad gateway</html>"), model.Passing, 7 * time.Second, "502"},
		"wrong key":         {status(401, `{"error":{"message":"who are you"}}`), model.Misconfigured, 0, "who are you"},
		"no such model":     {status(404, `{"error":{"message":"no model"}}`), model.Misconfigured, 0, "no model"},
		"moved":             {status(302, ""), model.Misconfigured, 0, "302"},
		"context length":    {status(400, `{"error":{"message":"This model's maximum context length is 8192 tokens"}}`), model.TooLong, 0, "8192"},
		"llama.cpp context": {status(400, `{"error":{"message":"the request exceeds the available context size"}}`), model.TooLong, 0, "context"},
		"body too large":    {status(413, ""), model.TooLong, 0, "413"},
		"refused for good":  {status(400, `{"error":{"message":"bad tool schema"}}`), model.Final, 0, "bad tool schema"},
		"connection cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"choices":`)
		}, model.Passing, 0, "does not answer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := asking(t, tt.h, doors.Model{Model: "m"}, "secret-key").Ask(t.Context(), hello())
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			if e.Kind != tt.kind || e.After != tt.after || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("got kind %d after %s: %v", e.Kind, e.After, e)
			}
			if strings.Contains(e.Error(), "secret-key") {
				t.Errorf("the key is in %v", e)
			}
		})
	}
}

func TestATimeoutIsPassingAndACancelIsNot(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	hang := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	_, err := asking(t, hang, doors.Model{Model: "m", TimeoutSeconds: 1}, "").Ask(t.Context(), hello())
	var e *model.Error
	if !errors.As(err, &e) || e.Kind != model.Passing || !strings.Contains(e.Error(), "within 1s") {
		t.Errorf("timeout: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := asking(t, hang, doors.Model{Model: "m"}, "").Ask(ctx, hello()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestPatience(t *testing.T) {
	quick := model.Patience{First: time.Millisecond, Limit: 4 * time.Millisecond, Slow: 2 * time.Millisecond}
	var n atomic.Int32
	flaky := func(fails int32, code int) http.HandlerFunc {
		n.Store(0)
		return func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) <= fails {
				w.WriteHeader(code)
				return
			}
			reply(`{"content":"at last"}`)(w, r)
		}
	}
	for _, code := range []int{429, 500, 503, 401} {
		told := 0
		a, err := quick.Ask(t.Context(), asking(t, flaky(3, code), doors.Model{Model: "m"}, ""), hello(), func(time.Duration, *model.Error) { told++ })
		if err != nil || a.Text != "at last" || told != 3 {
			t.Errorf("%d: %v, %v, told %d times", code, a, err, told)
		}
	}
	_, err := quick.Ask(t.Context(), asking(t, flaky(3, 400), doors.Model{Model: "m"}, ""), hello(), func(time.Duration, *model.Error) {})
	if model.AsError(err).Kind != model.Final || n.Load() != 1 {
		t.Errorf("a final error: %v after %d requests", err, n.Load())
	}
}

// The scripted model's service faults, over its real wire.
func TestAgainstTheScriptedModel(t *testing.T) {
	s, err := scriptedmodel.Faults()
	if err != nil {
		t.Fatal(err)
	}
	run := scriptedmodel.Start(t, s)
	key := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(key, []byte(run.Key), 0o600); err != nil {
		t.Fatal(err)
	}
	m := model.NewOpenAI(doors.Model{URL: run.BaseURL, Model: "scripted", TimeoutSeconds: 20}, key)
	quick := model.Patience{First: time.Millisecond, Limit: 10 * time.Millisecond, Slow: time.Millisecond}
	ask := func(text string) (model.Answer, error) {
		return quick.Ask(t.Context(), m, model.Request{
			Messages: []model.Message{{Role: model.User, Text: text}},
			Tools:    []model.Offer{{Name: "fs_list", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "finish", Schema: json.RawMessage(`{"type":"object"}`)}},
		}, func(time.Duration, *model.Error) {})
	}
	for _, fault := range []string{"rate limit", "unavailable", "cut connection", "malformed body"} {
		if a, err := ask("fault: " + fault); err != nil || len(a.Calls) != 1 {
			t.Errorf("%s: %+v, %v", fault, a, err)
		}
	}
	for _, fault := range []string{"no choices", "length"} {
		if a, err := ask("fault: " + fault); err != nil || a.Problem == "" {
			t.Errorf("%s: %+v, %v; want a problem", fault, a, err)
		}
	}
	if a, err := ask("fault: huge text"); err != nil || len(a.Text) < 2<<20-1 {
		t.Errorf("huge text: %d bytes, %v", len(a.Text), err)
	}
	if _, err := ask("fault: bad request"); model.AsError(err).Kind != model.Final {
		t.Errorf("bad request: %v", err)
	}
}
