package doorclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nisse.io/nisse/internal/doors"
)

// callTimeout after which a call is asked for again. A broker that still runs it knows the ID and waits for the one that runs.
const callTimeout = 10 * time.Minute

// ErrInternal is wrapped when the broker answers that something went wrong inside it. Whether the call ran is open, as it is with
// every other error.
var ErrInternal = errors.New("the broker failed inside")

// Tool that the broker offers.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Result of a call, as it came.
type Result struct {
	doors.ToolResult
	// Text that the tool returned: the same as the structure, or whatever a foreign tool said.
	Text string
}

// Tools at the broker, over MCP. The session is made when it is needed, and again when it broke.
type Tools struct {
	door Door
	http *http.Client
	log  *slog.Logger

	watchers watchers

	mu      sync.Mutex
	session *mcp.ClientSession
}

// NewTools for the broker's door.
func NewTools(d Door, log *slog.Logger) *Tools { return &Tools{door: d, http: d.client(), log: log} }

// Close the session.
func (t *Tools) Close() { t.drop(nil) }

func (t *Tools) connected(ctx context.Context) (*mcp.ClientSession, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session != nil {
		return t.session, nil
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "nisse-agentruntime", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}, ProgressNotificationHandler: t.watchers.hear})
	ctx, cancel := context.WithTimeout(ctx, shortRequest)
	defer cancel()
	s, err := c.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: strings.TrimSuffix(t.door.URL, "/") + "/mcp", HTTPClient: t.http,
		// Nothing is pushed over this connection: tools are listed before each request to the model.
		DisableStandaloneSSE: true, MaxRetries: -1, MaxEventSize: maxBody,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker's tools: %w", err)
	}
	t.session = s
	return s, nil
}

// drop the session, so that the next use makes another. With s given, only if that is still the one in use.
func (t *Tools) drop(s *mcp.ClientSession) {
	t.mu.Lock()
	old := t.session
	if old == nil || (s != nil && s != old) {
		t.mu.Unlock()
		return
	}
	t.session = nil
	t.mu.Unlock()
	// Closing tells the broker, which may be away; nobody waits for that.
	go func() { _ = old.Close() }()
}

// List the tools on offer now.
func (t *Tools) List(ctx context.Context) ([]Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, shortRequest)
	defer cancel()
	s, err := t.connected(ctx)
	if err != nil {
		return nil, err
	}
	var out []Tool
	for tool, err := range s.Tools(ctx, nil) {
		if err != nil {
			t.drop(s)
			return nil, fmt.Errorf("list tools: %w", err)
		}
		schema, err := json.Marshal(tool.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("list tools: schema of %s: %w", tool.Name, err)
		}
		out = append(out, Tool{Name: tool.Name, Description: tool.Description, Schema: schema})
	}
	return out, nil
}

// Call a tool once, under the call's own ID. An error means that nobody here knows whether it ran: the same call is then to be made
// again under the same ID. Until it returns, progress is called with each line that tells how far the call is; it must not block.
func (t *Tools) Call(ctx context.Context, workItem, id, tool string, args json.RawMessage, progress func(line string)) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := t.connected(ctx)
	if err != nil {
		return Result{}, err
	}
	p := &mcp.CallToolParams{Meta: mcp.Meta{doors.MetaCallID: id, doors.MetaWorkItem: workItem}, Name: tool, Arguments: args}
	token, unwatched := t.watchers.add(progress)
	defer unwatched()
	p.SetProgressToken(token)
	res, err := s.CallTool(ctx, p)
	if err != nil {
		if r, ok := answered(err); ok {
			return r, nil
		}
		var e *jsonrpc.Error
		if errors.As(err, &e) && (e.Code == jsonrpc.CodeInternalError || e.Code == 0) { // 0: a handler's own error
			err = fmt.Errorf("%w: %w", ErrInternal, err)
		} else {
			t.drop(s)
		}
		return Result{}, fmt.Errorf("call %s: %w", tool, err)
	}
	return read(res), nil
}

// answered tells whether an error is the broker's answer that the call was not taken, rather than a broken connection.
func answered(err error) (Result, bool) {
	if errors.Is(err, errTooLarge) {
		return FromDoor(doors.ToolResult{Status: doors.Refused, Reason: "TooLarge", Message: "the broker does not read a call of this size"}), true
	}
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return Result{}, false
	}
	switch e.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidRequest, jsonrpc.CodeParseError:
		return FromDoor(doors.ToolResult{Status: doors.Refused, Reason: "InvalidCall", Message: e.Message}), true
	}
	return Result{}, false
}

// FromDoor makes a result whose text is the structure.
func FromDoor(r doors.ToolResult) Result {
	text, err := json.Marshal(r)
	if err != nil { // output that is no JSON
		r.Output = nil
		text, _ = json.Marshal(r) // strings and numbers only
	}
	return Result{ToolResult: r, Text: string(text)}
}

func read(res *mcp.CallToolResult) Result {
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		} else {
			fmt.Fprintf(&b, "[content of type %T left out]", c)
		}
	}
	out := Result{Text: b.String()}
	if raw, err := json.Marshal(res.StructuredContent); err == nil && json.Unmarshal(raw, &out.ToolResult) == nil && out.Status != "" {
		if out.Text == "" {
			out.Text = string(raw)
		}
		return out
	}
	if json.Unmarshal([]byte(out.Text), &out.ToolResult) == nil && known(out.Status) {
		return out
	}
	out.ToolResult = doors.ToolResult{Status: doors.Done}
	if res.IsError {
		out.Status = doors.Failed
	}
	return out
}

func known(status string) bool {
	switch status {
	case doors.Done, doors.Failed, doors.Pending, doors.Refused, doors.Halted, doors.Unknown:
		return true
	}
	return false
}

// closing runs f when the body is closed.
type closing struct {
	io.ReadCloser
	f func()
}

func (c closing) Close() error {
	defer c.f()
	return c.ReadCloser.Close()
}
