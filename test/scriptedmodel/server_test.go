package scriptedmodel_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"nisse.io/nisse/test/scriptedmodel"
)

func scenario(t *testing.T, text string) *scriptedmodel.Scenario {
	t.Helper()
	s, err := scriptedmodel.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// post sends a body as it stands and returns status and answer.
func post(t *testing.T, m *scriptedmodel.Running, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.BaseURL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

const greet = `{models: [a, b], rules: [{name: greet, when: {user: "hi (?P<who>\\w+)"}, then: {text: "hello ${user.who}", calls: [{tool: wave, args: {times: 1}}, {tool: bow}]}}]}`

func TestKeyIsRequired(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, greet))
	for _, key := range []string{"", "sk-other", m.Key + "x"} {
		if status, answer := post(t, m, key, `{}`); status != http.StatusUnauthorized || !strings.Contains(answer, "API key") {
			t.Errorf("key %q: %d %s", key, status, answer)
		}
	}
	if n := m.Total(); n != 0 {
		t.Errorf("%d requests counted", n)
	}
}

func TestModelsAreListed(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, greet))
	client := openai.NewClient(option.WithBaseURL(m.BaseURL), option.WithAPIKey(m.Key))
	page, err := client.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, model := range page.Data {
		names = append(names, model.ID)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a real service refuses must not pass here, or a runtime's mistakes would show first at a person's expense.
func TestBadRequestsAreRefused(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, greet))
	user := `{"role":"user","content":"hi you"}`
	called := `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"wave","arguments":"{}"}}]}`
	tool := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"ok"}` }
	body := func(messages ...string) string {
		return `{"model":"a","messages":[` + strings.Join(messages, ",") + `]}`
	}
	for _, tc := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"no JSON", `{"model":`, 400, "parse the JSON"},
		{"no messages", body(), 400, "messages is empty"},
		{"unknown model", `{"model":"c","messages":[` + user + `]}`, 404, "there are: a, b"},
		{"unknown role", body(`{"role":"robot","content":"x"}`), 400, `role \"robot\"`},
		{"call without result", body(user, called), 400, "Missing: c1"},
		{"call without result, then words", body(user, called, user), 400, "Missing: c1"},
		{"result without call", body(user, tool("c1")), 400, "answers no tool call"},
		{"result twice", body(user, called, tool("c1"), tool("c1")), 400, "answers no tool call"},
		{"image", body(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}`), 400, "reads text only"},
		{"dot in a tool's name", `{"model":"a","messages":[` + user + `],"tools":[{"type":"function","function":{"name":"fs.read"}}]}`, 400, "does not match"},
		{"two tools of a name", `{"model":"a","messages":[` + user + `],"tools":[{"type":"function","function":{"name":"x"}},{"type":"function","function":{"name":"x"}}]}`, 400, "two functions"},
		{"choice of an unknown tool", `{"model":"a","messages":[` + user + `],"tool_choice":{"type":"function","function":{"name":"x"}}}`, 400, "not among the tools"},
		{"two choices", `{"model":"a","n":2,"messages":[` + user + `]}`, 400, "one choice"},
		{"in order", body(`{"role":"system","content":"be kind"}`, user, called, tool("c1"), `{"role":"user","content":[{"type":"text","text":"hi "},{"type":"text","text":"two"}]}`), 200, "hello two"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := post(t, m, m.Key, tc.body)
			if status != tc.status || !strings.Contains(answer, tc.says) {
				t.Errorf("%d %s; want %d and %q", status, answer, tc.status, tc.says)
			}
		})
	}
}

// A runtime that was killed asks again and must be told the same, to the byte; another conversation has other ids.
func TestAnswersAreStable(t *testing.T) {
	s := scenario(t, greet)
	first, second := scriptedmodel.Start(t, s), scriptedmodel.Start(t, s)
	const body = `{"model":"a","messages":[{"role":"user","content":"hi you"}]}`
	_, one := post(t, first, first.Key, body)
	_, again := post(t, first, first.Key, body)
	_, elsewhere := post(t, second, second.Key, body)
	if one != again || one != elsewhere {
		t.Errorf("one request, three answers:\n%s\n%s\n%s", one, again, elsewhere)
	}
	_, other := post(t, first, first.Key, strings.Replace(body, "hi you", "hi her", 1))
	if ids, others := callIDs(t, one), callIDs(t, other); ids[0] == ids[1] || ids[0] == others[0] {
		t.Errorf("ids %v and %v", ids, others)
	}
}

func callIDs(t *testing.T, answer string) (ids []string) {
	t.Helper()
	var completion openai.ChatCompletion
	if err := json.Unmarshal([]byte(answer), &completion); err != nil {
		t.Fatal(err)
	}
	for _, call := range completion.Choices[0].Message.ToolCalls {
		ids = append(ids, call.ID)
	}
	return ids
}

func TestToolChoice(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, `{rules: [
		{name: both, when: {user: both}, then: {calls: [{tool: a}, {tool: b}]}},
		{name: b, then: {calls: [{tool: b}]}},
		{name: talk, then: {text: "no call"}}]}`))
	for _, tc := range []struct{ name, choice, user, rule string }{
		{"auto", `"auto"`, "both", "both"},
		{"none", `"none"`, "both", "talk"},
		{"required", `"required"`, "x", "b"},
		{"by name", `{"type":"function","function":{"name":"b"}}`, "both", "b"},
		{"by a name that no rule calls", `{"type":"function","function":{"name":"c"}}`, "both", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tools := `[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}},{"type":"function","function":{"name":"c"}}]`
			status, answer := post(t, m, m.Key, `{"model":"scripted","messages":[{"role":"user","content":"`+tc.user+`"}],"tools":`+tools+`,"tool_choice":`+tc.choice+`}`)
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, answer)
			}
			seen := m.Requests()
			if got := seen[len(seen)-1].Rule; got != tc.rule {
				t.Errorf("rule %q answered, not %q", got, tc.rule)
			}
		})
	}
}

func TestNoRuleMatches(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, greet))
	status, answer := post(t, m, m.Key, `{"model":"a","messages":[{"role":"user","content":"bye"}]}`)
	if status != http.StatusOK || !strings.Contains(answer, `my script has no answer to this: \"bye\"`) {
		t.Errorf("%d %s", status, answer)
	}
	if got := m.Requests()[0]; got.Rule != "" || !strings.Contains(got.Problem, "no answer") {
		t.Errorf("remembered as %+v", got)
	}
}

func TestDebugRequests(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, greet))
	for i := range 300 {
		post(t, m, m.Key, fmt.Sprintf(`{"model":"a","messages":[{"role":"user","content":"hi %d"}]}`, i))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(m.BaseURL, "/v1")+"/debug/requests", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+m.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		Total    int
		ByRule   map[string]int
		Requests []scriptedmodel.Request
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Total != 300 || got.ByRule["greet"] != 300 || len(got.Requests) != 256 {
		t.Fatalf("total %d, by rule %v, kept %d", got.Total, got.ByRule, len(got.Requests))
	}
	last := got.Requests[255]
	if last.Number != 300 || !bytes.Contains(last.Body, []byte("hi 299")) {
		t.Errorf("the last is %d: %s", last.Number, last.Body)
	}
}

func TestAwayAndBack(t *testing.T) {
	m := scriptedmodel.Start(t, scenario(t, greet))
	m.Stop(t)
	if _, err := http.Get(m.BaseURL + "/models"); err == nil {
		t.Fatal("it answers while it is away")
	}
	m.Restart(t)
	if status, _ := post(t, m, m.Key, `{"model":"a","messages":[{"role":"user","content":"hi you"}]}`); status != http.StatusOK {
		t.Errorf("status %d after it came back", status)
	}
}

// Every fault, as OpenAI's own client meets it.
func TestFaults(t *testing.T) {
	s, err := scriptedmodel.Faults()
	if err != nil {
		t.Fatal(err)
	}
	type meets struct {
		answer openai.ChatCompletion
		err    error
	}
	status := func(t *testing.T, m meets, want int) *openai.Error {
		t.Helper()
		var refused *openai.Error
		if !errors.As(m.err, &refused) || refused.StatusCode != want {
			t.Fatalf("error %v; want status %d", m.err, want)
		}
		return refused
	}
	calls := func(t *testing.T, m meets) []openai.ChatCompletionMessageToolCallUnion {
		t.Helper()
		if m.err != nil {
			t.Fatal(m.err)
		}
		if len(m.answer.Choices[0].Message.ToolCalls) == 0 {
			t.Fatalf("no calls: %s", m.answer.RawJSON())
		}
		return m.answer.Choices[0].Message.ToolCalls
	}
	argument := func(want string) func(*testing.T, meets) {
		return func(t *testing.T, m meets) {
			if got := calls(t, m)[0].Function.Arguments; !strings.Contains(got, want) {
				t.Errorf("arguments %s, not %s", got, want)
			}
		}
	}
	for fault, check := range map[string]func(*testing.T, meets){
		"rate limit": func(t *testing.T, m meets) {
			if got := status(t, m, 429).Response.Header.Get("Retry-After"); got != "1" {
				t.Errorf("Retry-After %q", got)
			}
		},
		"unavailable":  func(t *testing.T, m meets) { status(t, m, 503) },
		"bad request":  func(t *testing.T, m meets) { status(t, m, 400) },
		"unauthorised": func(t *testing.T, m meets) { status(t, m, 401) },
		"silent": func(t *testing.T, m meets) {
			if m.err == nil {
				t.Error("it answered")
			}
		},
		"cut connection": func(t *testing.T, m meets) {
			if !errors.Is(m.err, io.ErrUnexpectedEOF) {
				t.Errorf("error %v", m.err)
			}
		},
		"malformed body": func(t *testing.T, m meets) {
			if m.err == nil {
				t.Error("it was understood")
			}
		},
		"no choices": func(t *testing.T, m meets) {
			if m.err != nil || len(m.answer.Choices) != 0 {
				t.Errorf("%v %s", m.err, m.answer.RawJSON())
			}
		},
		"empty answer": func(t *testing.T, m meets) {
			if said := m.answer.Choices[0].Message; said.Content != "" || len(said.ToolCalls) != 0 {
				t.Errorf("%s", m.answer.RawJSON())
			}
		},
		"huge text": func(t *testing.T, m meets) {
			if n := len(m.answer.Choices[0].Message.Content); n != 2<<20 {
				t.Errorf("%d bytes", n)
			}
		},
		"length": func(t *testing.T, m meets) {
			if got := m.answer.Choices[0].FinishReason; got != "length" {
				t.Errorf("finish reason %q", got)
			}
		},
		"extra fields": func(t *testing.T, m meets) {
			argument(`"confidence":"high"`)(t, m)
			if !strings.Contains(m.answer.RawJSON(), "mood") {
				t.Error(m.answer.RawJSON())
			}
		},
		"malformed arguments": func(t *testing.T, m meets) {
			if got := calls(t, m)[0].Function.Arguments; json.Valid([]byte(got)) {
				t.Errorf("arguments %s", got)
			}
		},
		"duplicate ids": func(t *testing.T, m meets) {
			if got := calls(t, m); len(got) != 2 || got[0].ID != got[1].ID {
				t.Errorf("%+v", got)
			}
		},
		"unknown tool": func(t *testing.T, m meets) {
			if got := calls(t, m)[0].Function.Name; got != "launch_missiles" {
				t.Errorf("tool %s", got)
			}
		},
		"no arguments": func(t *testing.T, m meets) {
			if got := calls(t, m)[0].Function.Arguments; got != "" {
				t.Errorf("arguments %s", got)
			}
		},
		"many steps": func(t *testing.T, m meets) {
			var args struct{ Steps []any }
			if err := json.Unmarshal([]byte(calls(t, m)[0].Function.Arguments), &args); err != nil || len(args.Steps) != 51 {
				t.Errorf("%d steps, %v", len(args.Steps), err)
			}
		},
		"endless loop":         argument(`"path":"/srv/nisse"`),
		"arguments are a list": argument(`["/srv/nisse"]`),
		"duplicate keys":       argument(`"path":"/srv/nisse","path":"/etc"`),
		"float":                argument(`"limit":1.5`),
		"huge integer":         argument(`"limit":9007199254740993`),
		"zero steps":           argument(`"steps":[]`),
		"large plan":           argument(strings.Repeat("x", 17000)),
		"path outside":         argument(`"path":"/etc/passwd"`),
		"write without plan":   argument(`"path":"/srv/nisse/sneaked.txt"`),
		"other device":         argument(`"device":"no-such-device"`),
		"dotted tool":          argument(`"path":"/srv/nisse"`),
	} {
		t.Run(fault, func(t *testing.T) {
			m := scriptedmodel.Start(t, s)
			// Only the silent one is waited for in vain.
			timeout := 30 * time.Second
			if fault == "silent" {
				timeout = 200 * time.Millisecond
			}
			client := openai.NewClient(option.WithBaseURL(m.BaseURL), option.WithAPIKey(m.Key), option.WithMaxRetries(0), option.WithRequestTimeout(timeout))
			answer, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
				Model: "scripted", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("fault: " + fault)},
			})
			got := meets{err: err}
			if answer != nil {
				got.answer = *answer
			}
			check(t, got)
		})
	}
}

// Faults of the service pass; who asks again in the same words is served in the end.
func TestFaultsPass(t *testing.T) {
	s, err := scriptedmodel.Faults()
	if err != nil {
		t.Fatal(err)
	}
	for fault, asks := range map[string]int{"rate limit": 3, "unavailable": 3, "cut connection": 2, "malformed body": 2} {
		t.Run(fault, func(t *testing.T) {
			m := scriptedmodel.Start(t, s)
			client := openai.NewClient(option.WithBaseURL(m.BaseURL), option.WithAPIKey(m.Key), option.WithMaxRetries(0))
			for i := 1; ; i++ {
				answer, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
					Model: "scripted", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("fault: " + fault)},
				})
				if err != nil && i < asks {
					continue
				}
				if err != nil || i != asks || answer.Choices[0].Message.ToolCalls[0].Function.Name != "finish" {
					t.Errorf("asked %d times, not %d: %v", i, asks, err)
				}
				return
			}
		})
	}
}
