package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/doors"
)

// rig is a small world with both doors: enough of a broker and a gateway to count what reaches them, and to be away. What the real
// ones do is tested with the real ones.
type rig struct {
	t testing.TB
	http.Handler
	server *httptest.Server
	addr   string

	mu       sync.Mutex
	changed  chan struct{}
	snap     doors.Snapshot
	steps    []doors.Step
	next     int
	epoch    string
	inbox    []doors.Message
	acked    int64
	out      []doors.Outgoing
	calls    []made
	results  map[string]doors.ToolResult
	fault    func(made) *doors.ToolResult // an answer other than the usual
	refuse   func(doors.Outgoing) int     // a status other than 202 for a message
	refused  int
	troubles []doors.Trouble
	// untroubled: reports of trouble are answered with 503.
	untroubled bool
	// inactive: they are refused, as of an item that is not the active one; noReports counts how often.
	inactive  bool
	noReports int
	hold      chan struct{} // calls of tools wait for it
	tells     chan string   // what is said of a call that waits
	// inboxShut: the mailbox's inbox answers 503; turnedAway counts how often it did.
	inboxShut  bool
	turnedAway int
	// hungUp counts the work streams that the process ended.
	hungUp int
}

// made is a call that reached the broker, however often.
type made struct {
	ID, Item, Tool, Args string
	Times                int
}

const writeSchema = `{"type":"object","properties":{"device":{"enum":["web1"]},"path":{"type":"string"},"content":{"type":"string"}},"required":["device","path"],"additionalProperties":false}`

var schemas = map[string]string{
	"fs_list": writeSchema, "fs_stat": writeSchema, "fs_write": writeSchema,
	"fs_read":     `{"type":"object","properties":{"device":{"enum":["web1"]},"path":{"type":"string"},"limit":{"type":"integer"}},"required":["device","path"],"additionalProperties":false}`,
	"exec":        `{"type":"object","properties":{"device":{"enum":["web1"]},"argv":{"type":"array","items":{"type":"string"}}},"required":["device","argv"],"additionalProperties":false}`,
	"submit_plan": `{"type":"object","properties":{"reason":{"type":"string"},"steps":{"type":"array"}},"required":["steps"],"additionalProperties":false}`,
	"ask_human":   `{"type":"object","properties":{"question":{"type":"string"}},"required":["question"],"additionalProperties":false}`,
	"finish":      `{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"],"additionalProperties":false}`,
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, changed: make(chan struct{}), epoch: "e1", results: map[string]doors.ToolResult{}, addr: "127.0.0.1:0"}
	r.snap = doors.Snapshot{Agent: "ops", AgentUID: "uid-ops", Devices: []doors.Device{{Name: "web1", Online: true, Since: "2026-11-30T11:00:00Z"}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/work", r.serveWork)
	mux.Handle("/mcp", r.tools())
	mux.HandleFunc("POST /v1/trouble", r.serveTrouble)
	mux.HandleFunc("GET /v1/inbox", r.serveInbox)
	mux.HandleFunc("POST /v1/inbox/ack", r.serveAck)
	mux.HandleFunc("POST /v1/outbox", r.serveOutbox)
	r.Handler = mux
	r.up()
	t.Cleanup(func() { r.down() })
	return r
}

func (r *rig) up() {
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: r}}
	r.server.Start()
}

func (r *rig) down() {
	if r.server != nil {
		r.server.CloseClientConnections()
		r.server.Listener.Close()
		r.server.Config.Close()
		r.server = nil
	}
}

func (r *rig) url() string { return "http://" + r.addr }

// change the world and wake whoever waits.
func (r *rig) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// until waits for a condition of the world.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.After(40 * time.Second)
	for {
		r.mu.Lock()
		done, c := ok(), r.changed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c:
		case <-deadline:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("waited in vain until %s; said %q, made %+v, active %+v", what, r.out, r.calls, r.snap.Active)
		}
	}
}

func (r *rig) serveWork(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	for {
		r.mu.Lock()
		raw, err := json.Marshal(r.snap)
		c := r.changed
		r.mu.Unlock()
		if err != nil {
			r.t.Error(err)
			return
		}
		if _, err := w.Write(append(raw, '\n')); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-c:
		case <-q.Context().Done():
			r.change(func() { r.hungUp++ })
			return
		}
	}
}

// serveTrouble keeps what is reported, as the broker does.
func (r *rig) serveTrouble(w http.ResponseWriter, q *http.Request) {
	var in doors.Trouble
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
		r.t.Error(err)
	}
	r.change(func() {
		switch {
		case r.untroubled:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.inactive || r.snap.Active == nil || r.snap.Active.Name != in.WorkItem:
			r.noReports++
			w.WriteHeader(http.StatusConflict)
		default:
			r.troubles = append(r.troubles, in)
			r.active(func(a *doors.Item) { a.Trouble = in.Reason })
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

func (r *rig) tools() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "broker", Version: "1"}, nil)
	for name, schema := range schemas {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			id, _ := q.Params.Meta[doors.MetaCallID].(string)
			item, _ := q.Params.Meta[doors.MetaWorkItem].(string)
			res := r.judge(made{ID: id, Item: item, Tool: name, Args: string(q.Params.Arguments)})
			r.mu.Lock()
			hold, tells := r.hold, r.tells
			r.mu.Unlock()
			for n := 1.0; hold != nil; n++ {
				select {
				case <-hold:
					hold = nil
				case line := <-tells:
					if err := q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: q.Params.GetProgressToken(), Progress: n, Message: line}); err != nil {
						return nil, err
					}
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			raw, err := json.Marshal(res)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}, StructuredContent: res}, err
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
}

// judge a call as the broker would: the same ID is the same call.
func (r *rig) judge(m made) (res doors.ToolResult) {
	r.change(func() {
		if i := slices.IndexFunc(r.calls, func(c made) bool { return c.ID == m.ID }); i >= 0 {
			if r.calls[i].Args != m.Args || r.calls[i].Tool != m.Tool {
				r.t.Errorf("one ID with two calls: %+v and %+v", r.calls[i], m)
			}
			r.calls[i].Times++
			res = r.results[m.ID]
			return
		}
		m.Times = 1
		r.calls = append(r.calls, m)
		res = r.run(m)
		r.results[m.ID] = res
	})
	return res
}

func (r *rig) run(m made) doors.ToolResult {
	a := r.snap.Active
	if a == nil || a.Name != m.Item {
		return doors.ToolResult{Status: doors.Refused, Reason: "OtherWorkItem"}
	}
	if a.Stopped {
		return doors.ToolResult{Status: doors.Halted, Reason: "Stopped"}
	}
	if r.fault != nil {
		if res := r.fault(m); res != nil {
			return *res
		}
	}
	switch m.Tool {
	case "submit_plan":
		var p struct{ Steps []doors.Step }
		if err := json.Unmarshal([]byte(m.Args), &p); err != nil || len(p.Steps) == 0 {
			return doors.ToolResult{Status: doors.Refused, Reason: "PlanNotReady", Message: "a plan has at least one step"}
		}
		rev := int32(1)
		if a.Plan != nil {
			rev = a.Plan.Revision + 1
		}
		r.steps, r.next = p.Steps, 0
		gate := fmt.Sprintf("%s-rev-%d", a.Name, rev)
		r.active(func(a *doors.Item) {
			a.Plan = &doors.Plan{Name: gate, Revision: rev, State: "AwaitingApproval", Gate: gate, Steps: p.Steps}
			a.State = "AwaitingApproval"
		})
		return doors.ToolResult{Status: doors.Pending, Gate: gate, Revision: rev}
	case "ask_human":
		r.active(func(a *doors.Item) { a.Question, a.State = &doors.Question{ID: m.ID, Text: m.Args}, "AwaitingInput" })
		return doors.ToolResult{Status: doors.Pending}
	case "finish":
		r.snap.Ended = append(r.snap.Ended, doors.Summary{Name: a.Name, State: "Closed", Result: "Done"})
		r.snap.Active = nil
		return doors.ToolResult{Status: doors.Done}
	case "fs_write":
		if a.Plan == nil || a.Plan.State != "Approved" || r.next >= len(r.steps) {
			return doors.ToolResult{Status: doors.Refused, Reason: "NeedsApproval", Message: "submit a plan first"}
		}
		want := map[string]any{}
		if err := json.Unmarshal(r.steps[r.next].Args, &want); err != nil {
			return doors.ToolResult{Status: doors.Refused, Reason: "Invalid", Message: err.Error()}
		}
		want["device"] = r.steps[r.next].Device
		w, _ := canonical.Digest(want)
		got, _ := canonical.Digest(json.RawMessage(m.Args))
		if w != got {
			r.active(func(a *doors.Item) {
				a.Halt, a.State = &doors.Halt{ID: m.ID, Reason: "CallMismatch", Message: "differs"}, "AwaitingInput"
			})
			return doors.ToolResult{Status: doors.Halted, Reason: "CallMismatch"}
		}
		r.next++
		return doors.ToolResult{Status: doors.Done, Step: int32(r.next), Output: json.RawMessage(`{"path":"/srv/nisse/report.txt","bytes":53,"created":true}`)}
	case "exec":
		return doors.ToolResult{Status: doors.Done, Output: json.RawMessage(`{"exitCode":0,"stdout":"Filesystem 40G 12%\n","stderr":"","encoding":"utf-8"}`)}
	}
	return doors.ToolResult{Status: doors.Done, Output: json.RawMessage(`{"entries":[{"name":"notes.txt","kind":"file"}],"truncated":false}`)}
}

// active replaces the active item, so that a snapshot being sent is not changed under its feet. The lock is held.
func (r *rig) active(f func(*doors.Item)) {
	a := *r.snap.Active
	f(&a)
	r.snap.Active = &a
}

// open makes an item the active one, with a person's words for it in the mailbox.
func (r *rig) open(name, text string) {
	r.change(func() {
		r.snap.Active = &doors.Item{Name: name, UID: "uid-" + name, Title: text, CorrelationID: name, State: "Working"}
		r.post(doors.Message{WorkItem: name, Person: "lucas", MayInstruct: true, Text: text})
	})
}

// post a message; the lock is held.
func (r *rig) post(m doors.Message) {
	m.Seq = int64(len(r.inbox)) + 1
	m.ID = fmt.Sprintf("$%d", m.Seq)
	r.inbox = append(r.inbox, m)
}

// answer words that a person says to the active item's question.
func (r *rig) answer(text string) {
	r.change(func() {
		r.post(doors.Message{WorkItem: r.snap.Active.Name, Person: "lucas", MayInstruct: true, Text: text})
		r.active(func(a *doors.Item) { a.Question, a.State = nil, "Working" })
	})
}

// decide the plan that waits.
func (r *rig) decide(state, feedback string) {
	r.change(func() {
		r.active(func(a *doors.Item) {
			p := *a.Plan
			p.State, p.Person, p.Feedback = state, "lucas", feedback
			a.Plan, a.State = &p, "Working"
		})
	})
}

func (r *rig) serveInbox(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	shut := r.inboxShut
	if shut {
		r.turnedAway++
	}
	r.mu.Unlock()
	if shut {
		http.Error(w, `{"reason":"Away","message":"not now"}`, http.StatusServiceUnavailable)
		return
	}
	after, _ := strconv.ParseInt(q.URL.Query().Get("after"), 10, 64)
	wait := 2 * time.Second
	if q.URL.Query().Get("wait") == "0" {
		wait = 0
	}
	timeout := time.After(wait)
	for {
		r.mu.Lock()
		epoch, c := r.epoch, r.changed
		in := doors.Inbox{Epoch: epoch}
		if epoch == q.URL.Query().Get("epoch") {
			for _, m := range r.inbox {
				if m.Seq > after {
					in.Messages = append(in.Messages, m)
				}
			}
		}
		r.mu.Unlock()
		if epoch != q.URL.Query().Get("epoch") {
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(in)
			return
		}
		if len(in.Messages) > 0 {
			_ = json.NewEncoder(w).Encode(in)
			return
		}
		select {
		case <-c:
		case <-timeout:
			_ = json.NewEncoder(w).Encode(in)
			return
		case <-q.Context().Done():
			return
		}
	}
}

func (r *rig) serveAck(w http.ResponseWriter, q *http.Request) {
	var a doors.Ack
	if err := json.NewDecoder(q.Body).Decode(&a); err != nil {
		r.t.Error(err)
	}
	r.change(func() {
		if a.Epoch != r.epoch {
			w.WriteHeader(http.StatusConflict)
			return
		}
		r.acked = max(r.acked, a.Seq)
		w.WriteHeader(http.StatusNoContent)
	})
}

func (r *rig) serveOutbox(w http.ResponseWriter, q *http.Request) {
	var o doors.Outgoing
	if err := json.NewDecoder(q.Body).Decode(&o); err != nil {
		r.t.Error(err)
	}
	r.change(func() {
		if r.refuse != nil {
			if status := r.refuse(o); status != 0 {
				r.refused++
				w.WriteHeader(status)
				return
			}
		}
		if i := slices.IndexFunc(r.out, func(have doors.Outgoing) bool { return have.ID == o.ID }); i < 0 {
			r.out = append(r.out, o)
		} else if r.out[i] != o {
			r.t.Errorf("one ID with two messages: %+v and %+v", r.out[i], o)
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

// said in the room, without progress; the lock is held.
func (r *rig) said() (out []string) {
	for _, o := range r.out {
		if o.Kind == doors.Say {
			out = append(out, o.Text)
		}
	}
	return out
}

// reads tells whether anything in the room, progress or not, has a text in it.
func (r *rig) reads(text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(r.out, func(o doors.Outgoing) bool { return strings.Contains(o.Text, text) })
	}
}

func (r *rig) hears(text string) func() bool {
	return func() bool { return strings.Contains(strings.Join(r.said(), "\n"), text) }
}

func (r *rig) tooled(name string) func() bool {
	return func() bool { return slices.ContainsFunc(r.calls, func(m made) bool { return m.Tool == name }) }
}
