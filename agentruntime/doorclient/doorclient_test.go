package doorclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/internal/doors"
)

var quiet = slog.New(slog.DiscardHandler)

func token(t *testing.T, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func unwatched(string) {}

// What the broker tells of a call while it runs reaches who made it; what it tells of another call reaches nobody.
func TestProgressOfACall(t *testing.T) {
	ts := serveTools(t, "127.0.0.1:0", &mcp.StreamableHTTPOptions{Stateless: true}, "slow")
	heard := make(chan string, 9)
	ts.handler = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for n, p := range []mcp.ProgressNotificationParams{
			{ProgressToken: "another's", Message: "not mine"}, {ProgressToken: r.Params.GetProgressToken()}, {ProgressToken: r.Params.GetProgressToken(), Message: "40 %"},
		} {
			p.Progress = float64(n)
			if err := r.Session.NotifyProgress(ctx, &p); err != nil {
				return nil, err
			}
		}
		if got := <-heard; got != "40 %" {
			t.Errorf("heard %q", got)
		}
		return says(`{"status":"done"}`, nil)(ctx, r)
	}
	c := doorclient.NewTools(doorclient.Door{URL: ts.URL, TokenPath: token(t, "x")}, quiet)
	defer c.Close()
	got, err := c.Call(t.Context(), "wi-1", "call_1", "slow", json.RawMessage(`{}`), func(line string) { heard <- line })
	if err != nil || got.Status != doors.Done || len(heard) != 0 {
		t.Errorf("got %+v, %v, and %d lines more", got, err, len(heard))
	}
}

func TestTheWorkStreamComesBack(t *testing.T) {
	var connections atomic.Int32
	h := func(w http.ResponseWriter, r *http.Request) {
		n := connections.Add(1)
		if r.URL.Path != "/v1/work" || r.Header.Get("Authorization") != "Bearer one" {
			t.Errorf("asked %s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		switch n {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			fmt.Fprintf(w, "\n{\"agent\":\"ops\",\"ready\":[{\"name\":\"a\"}]}\n\n") // and the connection ends
		case 3:
			fmt.Fprint(w, "this is no snapshot\n")
		default:
			fmt.Fprint(w, "{\"agent\":\"ops\",\"active\":{\"name\":\"b\"}}\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	s := httptest.NewServer(http.HandlerFunc(h))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	var lost int
	doorclient.NewWork(doorclient.Door{URL: s.URL, TokenPath: token(t, "one\n")}, quiet).Run(ctx, func(s doors.Snapshot) {
		if s.Active != nil {
			got = append(got, s.Active.Name)
			cancel()
			return
		}
		got = append(got, s.Ready[0].Name)
	}, func(error) { lost++ })
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Error(diff)
	}
	if lost != 3 {
		t.Errorf("told of %d breaks, want 3", lost)
	}
}

func TestTheTokenIsReadEachTime(t *testing.T) {
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusAccepted)
	}))
	defer s.Close()
	path := token(t, "one")
	m := doorclient.NewMailbox(doorclient.Door{URL: s.URL, TokenPath: path})
	for _, value := range []string{"one", "two"} {
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.Send(t.Context(), doors.Outgoing{ID: "o"}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"Bearer one", "Bearer two"}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestTheMailbox(t *testing.T) {
	tests := map[string]struct {
		status  int
		body    string
		refused bool
		failed  bool
	}{
		"stored":          {202, "", false, false},
		"another body":    {409, `{"reason":"Conflict","message":"the same ID had another text"}`, true, true},
		"too long":        {413, `{"reason":"TooLarge","message":"32 KB at most"}`, true, true},
		"token not yet":   {401, `{"reason":"Unauthorized"}`, false, true},
		"not the pod yet": {403, `{"reason":"Forbidden"}`, false, true},
		"slow down":       {429, "", false, true},
		"broken":          {500, "oops", false, true},
		"redirected":      {307, "", false, true},
	}
	for name, tt := range tests {
		t.Run("send "+name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://elsewhere.invalid/")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer s.Close()
			err := doorclient.NewMailbox(doorclient.Door{URL: s.URL, TokenPath: token(t, "x")}).Send(t.Context(), doors.Outgoing{ID: "o", Text: "t"})
			if (err != nil) != tt.failed || errors.Is(err, doorclient.ErrRefused) != tt.refused {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("read, moved, acknowledge", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			switch {
			case r.Method == http.MethodPost:
				w.WriteHeader(http.StatusConflict)
			case q.Get("epoch") != "e2":
				w.WriteHeader(http.StatusConflict)
				_ = json.NewEncoder(w).Encode(doors.Inbox{Epoch: "e2"})
			default:
				_ = json.NewEncoder(w).Encode(doors.Inbox{Epoch: "e2", Messages: []doors.Message{{Seq: 5, ID: "$" + q.Get("after")}}})
			}
		}))
		defer s.Close()
		m := doorclient.NewMailbox(doorclient.Door{URL: s.URL, TokenPath: token(t, "x")})
		in, moved, err := m.Read(t.Context(), "e1", 9, true)
		if err != nil || !moved || in.Epoch != "e2" {
			t.Errorf("another epoch: %v %v %v", in, moved, err)
		}
		in, moved, err = m.Read(t.Context(), "e2", 4, false)
		if err != nil || moved || len(in.Messages) != 1 || in.Messages[0].ID != "$4" {
			t.Errorf("read: %v %v %v", in, moved, err)
		}
		if err := m.Ack(t.Context(), "e1", 9); err != nil {
			t.Errorf("acknowledge in an epoch that has gone: %v", err)
		}
	})
}

// tools is a broker's tool door with the real server side of the SDK.
type tools struct {
	*httptest.Server
	calls   chan *mcp.CallToolRequest
	handler mcp.ToolHandler
}

func serveTools(t *testing.T, addr string, opts *mcp.StreamableHTTPOptions, names ...string) *tools {
	t.Helper()
	ts := &tools{calls: make(chan *mcp.CallToolRequest, 100)}
	s := mcp.NewServer(&mcp.Implementation{Name: "broker", Version: "1"}, nil)
	for _, n := range names {
		s.AddTool(&mcp.Tool{Name: n, Description: "about " + n, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ts.calls <- r
			return ts.handler(ctx, r)
		})
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ts.Server = httptest.NewUnstartedServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, opts))
	ts.Listener.Close()
	ts.Listener = l
	ts.Start()
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	return ts
}

func says(text string, structured any) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: structured}, nil
	}
}

func TestToolsAreListedAndCalledUnderOurID(t *testing.T) {
	for name, opts := range map[string]*mcp.StreamableHTTPOptions{"sessions": {}, "stateless": {Stateless: true}, "plain JSON": {JSONResponse: true}} {
		t.Run(name, func(t *testing.T) {
			ts := serveTools(t, "127.0.0.1:0", opts, "fs_read", "finish")
			ts.handler = says(`{"status":"done","step":2}`, doors.ToolResult{Status: doors.Done, Step: 2})
			c := doorclient.NewTools(doorclient.Door{URL: ts.URL, TokenPath: token(t, "x")}, quiet)
			defer c.Close()
			list, err := c.List(t.Context())
			if err != nil || len(list) != 2 {
				t.Fatalf("list: %v, %v", list, err)
			}
			got, err := c.Call(t.Context(), "wi-1", "call_1", "fs_read", json.RawMessage(`{"path":"/a","path":"/b"}`), unwatched)
			if err != nil || got.Status != doors.Done || got.Step != 2 || got.Text != `{"status":"done","step":2}` {
				t.Fatalf("call: %+v, %v", got, err)
			}
			r := <-ts.calls
			if r.Params.Meta[doors.MetaCallID] != "call_1" || r.Params.Meta[doors.MetaWorkItem] != "wi-1" {
				t.Errorf("_meta %v", r.Params.Meta)
			}
			if string(r.Params.Arguments) != `{"path":"/a","path":"/b"}` {
				t.Errorf("the arguments came as %s; whoever judges them must see what the model wrote", r.Params.Arguments)
			}
			got, err = c.Call(t.Context(), "wi-1", "call_2", "no_such_tool", json.RawMessage(`{}`), unwatched)
			if err != nil || got.Status != doors.Refused || !strings.Contains(got.Text, "InvalidCall") {
				t.Errorf("unknown tool: %+v, %v", got, err)
			}
		})
	}
}

func TestWhatAToolReturnsBecomes(t *testing.T) {
	tests := map[string]struct {
		h      mcp.ToolHandler
		status string
		text   string
	}{
		"structure only":        {says("", map[string]any{"status": "refused", "reason": "X"}), doors.Refused, `{"reason":"X","status":"refused"}`},
		"the structure as text": {says(`{"status":"halted"}`, nil), doors.Halted, `{"status":"halted"}`},
		"a foreign tool":        {says("42 files", nil), doors.Done, "42 files"},
		"a foreign status":      {says(`{"status":"green"}`, nil), doors.Done, `{"status":"green"}`},
		"a foreign error": {func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no"}}}, nil
		}, doors.Failed, "no"},
		"a picture": {func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{MIMEType: "image/png", Data: []byte("x")}}}, nil
		}, doors.Done, "[content of type *mcp.ImageContent left out]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ts := serveTools(t, "127.0.0.1:0", nil, "x")
			ts.handler = tt.h
			c := doorclient.NewTools(doorclient.Door{URL: ts.URL, TokenPath: token(t, "x")}, quiet)
			defer c.Close()
			got, err := c.Call(t.Context(), "wi-1", "call_1", "x", json.RawMessage(`{}`), unwatched)
			if err != nil || got.Status != tt.status || got.Text != tt.text {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A broker that dies in the middle of a call leaves its outcome open, whatever way it answers; the next call finds the new one.
func TestABrokerThatDiesInACall(t *testing.T) {
	for name, opts := range map[string]*mcp.StreamableHTTPOptions{"sessions": {}, "stateless": {Stateless: true}, "plain JSON": {JSONResponse: true}} {
		t.Run(name, func(t *testing.T) {
			ts := serveTools(t, "127.0.0.1:0", opts, "slow", "new")
			stop := make(chan struct{})
			ts.handler = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				select {
				case <-ctx.Done():
				case <-stop:
				}
				return nil, errors.New("dying")
			}
			c := doorclient.NewTools(doorclient.Door{URL: ts.URL, TokenPath: token(t, "x")}, quiet)
			defer c.Close()
			var wg sync.WaitGroup
			var err error
			wg.Go(func() { _, err = c.Call(t.Context(), "wi-1", "call_1", "slow", json.RawMessage(`{}`), unwatched) })
			<-ts.calls
			addr := ts.Listener.Addr().String()
			ts.Listener.Close()
			ts.CloseClientConnections()
			wg.Wait()
			close(stop)
			if err == nil {
				t.Fatal("a call whose outcome is open gave no error")
			}
			if _, err := c.Call(t.Context(), "wi-1", "call_1", "slow", json.RawMessage(`{}`), unwatched); err == nil {
				t.Fatal("a call to nobody gave no error")
			}
			again := serveTools(t, addr, opts, "slow")
			again.handler = says(`{"status":"done"}`, nil)
			deadline := time.Now().Add(time.Minute)
			for {
				got, err := c.Call(t.Context(), "wi-1", "call_1", "slow", json.RawMessage(`{}`), unwatched)
				if err == nil {
					if got.Status != doors.Done {
						t.Errorf("got %+v", got)
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the broker is back and not found: %v", err)
				}
			}
			if r := <-again.calls; r.Params.Meta[doors.MetaCallID] != "call_1" {
				t.Errorf("_meta %v", r.Params.Meta)
			}
			if list, err := c.List(t.Context()); err != nil || len(list) != 1 {
				t.Errorf("the new broker's tools: %v, %v", list, err)
			}
		})
	}
}

func TestErrorsInsideTheBrokerLeaveTheOutcomeOpen(t *testing.T) {
	ts := serveTools(t, "127.0.0.1:0", &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: 4096}, "x")
	ts.handler = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("cannot tell")
	}
	c := doorclient.NewTools(doorclient.Door{URL: ts.URL, TokenPath: token(t, "x")}, quiet)
	defer c.Close()
	if _, err := c.Call(t.Context(), "wi-1", "call_1", "x", json.RawMessage(`{}`), unwatched); !errors.Is(err, doorclient.ErrInternal) {
		t.Errorf("got %v", err)
	}
	got, err := c.Call(t.Context(), "wi-1", "call_2", "x", json.RawMessage(`{"a":"`+strings.Repeat("x", 8192)+`"}`), unwatched)
	if err != nil || got.Status != doors.Refused || got.Reason != "TooLarge" {
		t.Errorf("a call that is too large: %+v, %v", got, err)
	}
	ts.handler = says(`{"status":"done"}`, nil)
	if got, err := c.Call(t.Context(), "wi-1", "call_1", "x", json.RawMessage(`{}`), unwatched); err != nil || got.Status != doors.Done {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}
