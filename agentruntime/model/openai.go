package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
)

const (
	// maxAnswer in bytes of a response's body.
	maxAnswer = 8 << 20
	// defaultTimeout of one request.
	defaultTimeout = 5 * time.Minute
)

// OpenAI speaks chat completions, as OpenAI, LiteLLM, vLLM, llama.cpp and Ollama serve them.
type OpenAI struct {
	cfg       doors.Model
	tokenPath string
	service   openai.ChatCompletionService
	timeout   time.Duration
}

// NewOpenAI for the endpoint of cfg. tokenPath names a file that may be absent, and may change.
func NewOpenAI(cfg doors.Model, tokenPath string) *OpenAI {
	timeout := time.Duration(cfg.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	h := &http.Client{
		Transport: keyed{path: tokenPath, base: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &OpenAI{cfg: cfg, tokenPath: tokenPath, timeout: timeout, service: openai.NewChatCompletionService(
		// The service alone, not the client: that one would read keys and addresses from the environment.
		option.WithBaseURL(cfg.URL), option.WithHTTPClient(h), option.WithMaxRetries(0))}
}

// keyed adds the key that is in the file now, and caps the answer.
type keyed struct {
	path string
	base http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	key, err := os.ReadFile(k.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the model's key: %w", err)
	}
	if token := strings.TrimSpace(string(key)); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := k.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		// Sorted here and not by the SDK, which cannot read the pages that proxies answer with.
		defer res.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(res.Body, 8<<10)) // what came of it is enough
		return nil, refused(r.URL.Host, res, body)
	}
	res.Body = &capped{ReadCloser: res.Body, left: maxAnswer}
	return res, nil
}

var errTooMuch = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

type capped struct {
	io.ReadCloser
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.ReadCloser.Read(p)
	c.left -= int64(n)
	return n, err
}

// Ask once. The caller asks again.
func (o *OpenAI) Ask(ctx context.Context, r Request) (Answer, error) {
	params, err := o.params(r)
	if err != nil {
		return Answer{}, &Error{Kind: Final, Err: err}
	}
	asked, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	res, err := o.service.New(asked, params)
	if err != nil {
		if ctx.Err() != nil {
			return Answer{}, ctx.Err()
		}
		return o.failed(err)
	}
	if len(res.Choices) == 0 {
		return Answer{Model: o.cfg.Model, Problem: "your answer held no choice", Garbled: true}, nil
	}
	return o.answer(res.Choices[0], res.Model), nil
}

func (o *OpenAI) answer(c openai.ChatCompletionChoice, name string) Answer {
	a := Answer{Model: name}
	if a.Model == "" {
		a.Model = o.cfg.Model
	}
	a.Text, a.Reasoning = Split(c.Message.Content)
	for _, field := range []string{"reasoning_content", "reasoning"} {
		var s string
		if f, ok := c.Message.JSON.ExtraFields[field]; ok && json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			a.Reasoning = strings.TrimSpace(a.Reasoning + "\n" + s)
		}
	}
	if a.Text == "" {
		a.Text = c.Message.Refusal
	}
	for _, call := range c.Message.ToolCalls {
		a.Calls = append(a.Calls, Call{ID: call.ID, Tool: call.Function.Name, Args: call.Function.Arguments})
	}
	if c.FinishReason == "length" && len(a.Calls) == 0 {
		a.Problem = "your answer was cut at the limit of its length; answer more briefly"
	}
	return a
}

func (o *OpenAI) params(r Request) (openai.ChatCompletionNewParams, error) {
	p := openai.ChatCompletionNewParams{Model: o.cfg.Model}
	if t := o.cfg.TemperatureMilli; t != nil {
		p.Temperature = openai.Float(float64(*t) / 1000)
	}
	if n := o.cfg.MaxTokens; n != nil {
		p.MaxTokens = openai.Int(int64(*n)) // the older name, since local servers know no other
	}
	for _, m := range r.Messages {
		switch m.Role {
		case System:
			p.Messages = append(p.Messages, openai.SystemMessage(m.Text))
		case User:
			p.Messages = append(p.Messages, openai.UserMessage(m.Text))
		case Tool:
			p.Messages = append(p.Messages, openai.ToolMessage(m.Text, m.CallID))
		case Assistant:
			p.Messages = append(p.Messages, assistant(m))
		}
	}
	for _, t := range r.Tools {
		var schema shared.FunctionParameters
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return p, fmt.Errorf("schema of tool %s: %w", t.Name, err)
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: t.Name, Description: openai.String(t.Description), Parameters: schema,
		}))
	}
	return p, nil
}

func assistant(m Message) openai.ChatCompletionMessageParamUnion {
	a := openai.ChatCompletionAssistantMessageParam{}
	if m.Text != "" {
		a.Content.OfString = openai.String(m.Text)
	}
	for _, c := range m.Calls {
		args := c.Args
		if !object(args) {
			args = "{}" // chat templates parse what they are given, and fail on what the model wrote
		}
		a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
			ID: c.ID, Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: toolName(c.Tool), Arguments: args},
		}})
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}
}

var odd = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// toolName as servers take it: a name that a model made up stands in the log, and must not make every later request fail.
func toolName(s string) string {
	s = odd.ReplaceAllString(s, "_")
	if s == "" {
		return "unnamed"
	}
	return s[:min(len(s), 64)]
}

func object(s string) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal([]byte(s), &m) == nil && m != nil
}

var tooLong = regexp.MustCompile(`(?i)context[ _-]?(?:length|size|window)|maximum context|too many tokens|prompt is too long|exceeds? the (?:available )?context`)

// failed sorts an error by what is to be done about it.
func (o *OpenAI) failed(err error) (Answer, error) {
	var known *Error
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &known):
		return Answer{}, known
	case errors.Is(err, errTooMuch):
		return Answer{Model: o.cfg.Model, Problem: "your answer was far too long"}, nil
	case errors.As(err, &syntax), strings.Contains(err.Error(), "error parsing response json"), strings.Contains(err.Error(), "expected destination type"):
		return Answer{Model: o.cfg.Model, Problem: "your answer did not arrive in a form that can be read", Garbled: true}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return Answer{}, &Error{Kind: Passing, Err: fmt.Errorf("the model did not answer within %s", o.timeout)}
	}
	return Answer{}, &Error{Kind: Passing, Err: fmt.Errorf("the model does not answer: %w", err)}
}

func refused(host string, res *http.Response, body []byte) *Error {
	var known struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	said := string(body)
	if json.Unmarshal(body, &known) == nil && known.Error.Message != "" {
		said = known.Error.Message
	}
	e := &Error{Err: fmt.Errorf("the model at %s answers %d %s: %s", host, res.StatusCode, http.StatusText(res.StatusCode), sanitize.Line(said, 300))}
	switch code := res.StatusCode; {
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooManyRequests, code >= 500:
		e.Kind, e.After = Passing, after(res)
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusPaymentRequired, code/100 == 3:
		e.Kind = Misconfigured
	case code == http.StatusRequestEntityTooLarge, tooLong.MatchString(said):
		e.Kind = TooLong
	default:
		e.Kind = Final
	}
	return e
}

const maxAfter = 5 * time.Minute

func after(res *http.Response) time.Duration {
	h := res.Header.Get("Retry-After")
	if s, err := strconv.Atoi(h); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, maxAfter)
	}
	if at, err := http.ParseTime(h); err == nil {
		return max(0, min(time.Until(at), maxAfter))
	}
	return 0
}
