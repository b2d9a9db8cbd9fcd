package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/loop"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/prompt"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/test/scriptedmodel"
)

var quick = loop.Timing{
	Patience: model.Patience{First: 5 * time.Millisecond, Limit: 50 * time.Millisecond, Slow: 20 * time.Millisecond},
	First:    5 * time.Millisecond, Limit: 50 * time.Millisecond, Notice: 200 * time.Millisecond, Settle: 500 * time.Millisecond, Progress: 5 * time.Millisecond, Grace: 5 * time.Second,
}

func TestAReportFromWordsToTheEnd(t *testing.T) {
	r := start(t, demo(t))
	r.open("wi-1", report)
	r.until("a plan waits", r.tooled("submit_plan"))
	r.decide("Approved", "")
	r.until("the item ends", r.ended("wi-1"))
	if diff := cmp.Diff([]string{"fs_list", "exec", "submit_plan", "fs_write", "finish"}, r.tools()); diff != "" {
		t.Error(diff)
	}
	r.mu.Lock()
	if diff := cmp.Diff([]string{"The disk usage is in /srv/nisse/report.txt: 53 bytes."}, r.said()); diff != "" {
		t.Error(diff)
	}
	var progress []string
	for _, o := range r.out {
		if o.Kind == doors.Progress {
			progress = append(progress, o.Text)
		}
	}
	r.mu.Unlock()
	if diff := cmp.Diff([]string{
		"Reading the disk usage.", "✓ web1 fs.list path=/srv/nisse", `✓ web1 exec argv=["/usr/bin/df","-h"]`,
		`✓ web1 fs.write path=/srv/nisse/report.txt content="Filesystem 40G 12%"`,
	}, progress); diff != "" {
		t.Error(diff)
	}
	r.until("the messages are acknowledged", func() bool { return r.acked == 1 })
	var types []string
	for _, e := range r.events() {
		if e.Type != event.UserMessage { // a quick person decides before the plan's result is in the log
			types = append(types, string(e.Type))
		}
	}
	if diff := cmp.Diff(strings.Fields("assistant_text tool_call tool_call tool_result tool_result assistant_text tool_call tool_result plan_submitted gate_opened "+
		"assistant_text tool_call tool_result assistant_text tool_call assistant_text tool_result"), types); diff != "" {
		t.Error(diff)
	}
}

func TestDecisionsReachTheModel(t *testing.T) {
	t.Run("rejected with a better idea", func(t *testing.T) {
		r := start(t, demo(t))
		r.open("wi-1", report)
		r.until("a plan waits", r.tooled("submit_plan"))
		r.decide("Rejected", "use /srv/nisse/daily.txt instead")
		r.until("a second plan waits", func() bool {
			a := r.snap.Active
			return a != nil && a.Plan != nil && a.Plan.Revision == 2 && strings.Contains(string(a.Plan.Steps[0].Args), "daily.txt")
		})
	})
	t.Run("could not be shown to anybody", func(t *testing.T) {
		r := start(t, demo(t))
		r.open("wi-1", report)
		r.until("a plan waits", r.tooled("submit_plan"))
		r.decide("NotReady", "its message would be too long")
		r.until("the model is asked again, and ends", r.tooled("finish"))
	})
	t.Run("halted, and replanned", func(t *testing.T) {
		r := start(t, demo(t))
		r.open("wi-1", report+" (off-by-one)")
		r.until("a plan waits", r.tooled("submit_plan"))
		r.decide("Approved", "")
		r.until("the item is halted", func() bool { return r.snap.Active != nil && r.snap.Active.Halt != nil })
		r.change(func() {
			r.active(func(a *doors.Item) {
				p := *a.Plan
				p.Closed = true
				a.Halt, a.Plan, a.State = nil, &p, "Working"
				a.Answer = &doors.Answer{Gate: "wi-1-halt-1", Answer: "Replan", Person: "lucas"}
			})
		})
		r.until("a second plan waits", func() bool {
			a := r.snap.Active
			return a != nil && a.Plan != nil && a.Plan.Revision == 2 && a.Plan.State == "AwaitingApproval"
		})
	})
}

func TestAnItemMadeByHandNeedsNoMessage(t *testing.T) {
	r := start(t, demo(t))
	r.change(func() {
		r.snap.Active = &doors.Item{Name: "wi-1", UID: "u", Title: "list", State: "Working", Request: "what is in /srv/nisse?"}
	})
	r.until("the item ends", r.ended("wi-1"))
	r.until("the list is told", r.hears("notes.txt"))
}

const talker = `
background: ['^\[context\]']
rules:
- {name: said-twice, when: {user: chat, turns: "1+"}, then: {text: "Anything else I can do?"}}
- {name: chat, when: {user: chat}, then: {text: "Hello. <think>never show this</think>"}}
- {name: answered, when: {user: 'that is all'}, then: {calls: [{tool: finish, args: {summary: "Bye."}}]}}
- {name: two, when: {user: two, turns: 0}, then: {calls: [{tool: fs_list, args: {device: web1, path: /a}}, {tool: fs_list, args: {device: web1, path: /b}}]}}
- {name: two-done, when: {user: two}, then: {calls: [{tool: finish, args: {summary: "Listed."}}]}}
`

func TestWordsAloneEndInAQuestion(t *testing.T) {
	r := start(t, scenario(t, talker))
	r.open("wi-1", "chat")
	r.until("a person is asked", r.tooled("ask_human"))
	r.mu.Lock()
	said := r.said()
	r.mu.Unlock()
	if diff := cmp.Diff([]string{"Hello.", "Anything else I can do?\n\nI ended here without a result. Say what to do, or type `stop`."}, said); diff != "" {
		t.Error(diff)
	}
	r.answer("that is all")
	r.until("the item ends", r.ended("wi-1"))
	for _, e := range r.events() {
		var x event.Text
		if e.Type == event.AssistantText && e.Decode(&x) == nil && strings.Contains(x.Text, "never show") {
			t.Error("a thought was stored as speech")
		}
	}
}

// Malformed answers of every kind: nothing is stuck, and people read a clear sentence.
func TestModelsThatGoWrong(t *testing.T) {
	faults, err := scriptedmodel.Faults()
	if err != nil {
		t.Fatal(err)
	}
	background, err := scriptedmodel.Parse([]byte("background: ['^\\[context\\]']\nrules: [{name: none, when: {user: '^never$'}, then: {text: x}}]"))
	if err != nil {
		t.Fatal(err)
	}
	m := scriptedmodel.Start(t, scriptedmodel.Join(background, faults))
	// What people read of it; "" where a second attempt heals it before it is worth a word.
	recovers := map[string]string{
		"rate limit": "", "unavailable": "", "cut connection": "", "malformed body": "",
		"unknown tool":         `✗ launch_missiles: not run, there is no tool "launch_missiles"`,
		"dotted tool":          `✗ fs.list: not run, there is no tool "fs.list"`,
		"malformed arguments":  "✗ fs_list: not run, the arguments are not JSON",
		"arguments are a list": "✗ fs_list: not run, the arguments are not a JSON object",
		"no arguments":         "✗ fs_list: not run, the arguments do not fit the tool: /: missing properties 'device', 'path'",
		"duplicate ids":        "✗ fs_stat: not run, two calls had one id, and only the first was taken",
		"extra fields":         "✗ fs_list: not run, the arguments do not fit the tool: /: additional properties 'confidence' not allowed",
		"float":                "✗ fs_read: not run, the arguments do not fit the tool: /limit",
		"other device":         "✗ fs_list: not run, the arguments do not fit the tool: /device",
		"zero steps":           "✗ submit_plan: refused, a plan has at least one step",
		"write without plan":   "✗ web1 fs.write path=",
		"length":               "✗ the model's answer was cut at the limit of its length; answer more briefly (asked again)",
		"huge text":            "All work and no play",
	}
	asks := map[string]struct{ says, told string }{
		"endless loop": {"for the 5th time", "✓ web1 fs.list"},
		"bad request":  {"I cannot go on", "I cannot go on"},
		"empty answer": {"could not use", "✗ the model's answer was empty (asked again)"},
		"no choices":   {"could not use", "✗ the model's answer held no choice (asked again)"},
	}
	for fault, told := range recovers {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := start(t, m)
			r.open("wi-1", "fault: "+fault)
			r.until("the item ends", r.ended("wi-1"))
			r.until("people read how it went", r.hears("Went on after"))
			r.until("people read what was wrong", r.reads(told))
		})
	}
	for fault, want := range asks {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := start(t, m)
			r.open("wi-1", "fault: "+fault)
			r.until("a person is asked", r.tooled("ask_human"))
			r.until("people read a clear sentence", r.hears(want.says))
			r.until("people read what was wrong", r.reads(want.told))
		})
	}
	t.Run("unauthorised", func(t *testing.T) {
		t.Parallel()
		r := start(t, m)
		r.open("wi-1", "fault: unauthorised")
		r.until("people read what to mend", r.hears("I cannot use my model"))
	})
}

func TestDoorsAndModelThatGoAway(t *testing.T) {
	t.Run("the model", func(t *testing.T) {
		m := demo(t)
		r := start(t, m)
		m.Stop(t)
		r.open("wi-1", "what is in /srv/nisse?")
		r.until("people are told", r.hears("I have had no answer"))
		m.Restart(t)
		r.until("the item ends", r.ended("wi-1"))
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := strings.Count(strings.Join(r.said(), "\n"), "I have had no answer"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
	t.Run("both doors in the middle of a call", func(t *testing.T) {
		r := start(t, demo(t))
		hold := make(chan struct{})
		r.change(func() { r.hold = hold })
		r.open("wi-1", "what is in /srv/nisse?")
		r.until("the call is made", r.tooled("fs_list"))
		r.down()
		r.change(func() { r.hold = nil })
		close(hold)
		r.up()
		r.until("the item ends", r.ended("wi-1"))
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.calls[0].Times < 2 || len(r.calls) != 2 {
			t.Errorf("calls: %+v; want the first one made again under its ID", r.calls)
		}
	})
	t.Run("words that wait at the gateway are read before the end", func(t *testing.T) {
		r := start(t, demo(t))
		hold := make(chan struct{})
		r.change(func() { r.hold = hold })
		r.open("wi-1", "what is in /srv/nisse?")
		r.until("the call is made", r.tooled("fs_list"))
		r.until("acknowledged", func() bool { return r.acked == 1 })
		r.change(func() { r.inboxShut = true })
		r.down() // ends the read that is under way
		r.up()
		r.until("the inbox was refused", func() bool { return r.turnedAway > 0 })
		r.change(func() {
			r.inbox = append(r.inbox, doors.Message{Seq: 2, ID: "$late", WorkItem: "wi-1", Person: "lucas", MayInstruct: true, Text: "what is in /srv/nisse?"})
			r.hold = nil
		})
		close(hold)
		r.until("the call has ended and the summary is said", func() bool { return len(r.out) > 1 || r.snap.Active == nil })
		r.change(func() { r.inboxShut = false })
		r.until("the item ends", r.ended("wi-1"))
		read := false
		for _, e := range r.events() {
			read = read || e.Source == "matrix/$late"
			if e.Type == event.ToolResult && strings.Contains(string(e.Payload), `"tool":"finish"`) && strings.Contains(string(e.Payload), `"status":"done"`) && !read {
				t.Error("the item ended before the words were read")
			}
		}
		if !read {
			t.Error("the words are not in the log")
		}
	})
	t.Run("another epoch", func(t *testing.T) {
		r := start(t, demo(t))
		r.open("wi-1", "what is in /srv/nisse?")
		r.until("the item ends", r.ended("wi-1"))
		r.until("acknowledged", func() bool { return r.acked == 1 })
		r.change(func() { // restored from a backup: the old messages are there again, under other numbers
			old := r.inbox[0]
			r.epoch, r.acked = "e2", 0
			r.inbox = []doors.Message{{Seq: 1, ID: "$0", WorkItem: "wi-0", Text: "older"}, old}
			r.inbox[1].Seq = 2
			r.snap.Ended = nil
			r.snap.Active = &doors.Item{Name: "wi-2", UID: "u2", State: "Working"}
			r.inbox = append(r.inbox, doors.Message{Seq: 3, ID: "$9", WorkItem: "wi-2", Person: "lucas", MayInstruct: true, Text: "what is in /srv/nisse?"})
		})
		r.until("the second item ends", r.ended("wi-2"))
		r.until("acknowledged", func() bool { return r.acked == 3 })
		n := 0
		for _, e := range r.events() {
			if e.Source == "matrix/$1" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the old message is in the log %d times", n)
		}
	})
}

func TestStopHoldsAtTheNextBoundary(t *testing.T) {
	r := start(t, scenario(t, talker))
	hold := make(chan struct{})
	r.change(func() { r.hold = hold })
	r.open("wi-1", "two")
	r.until("the first call is under way", r.tooled("fs_list"))
	r.change(func() {
		r.active(func(a *doors.Item) { a.Stopped, a.State = true, "AwaitingInput" })
		r.hold = nil
	})
	close(hold)
	r.until("its line shows", func() bool { return len(r.out) == 1 })
	r.mu.Lock()
	// The stop and the first call's end race on their way here: a call made meanwhile is held at the broker, and none follows it.
	if len(r.calls) > 2 || (len(r.calls) == 2 && r.results[r.calls[1].ID].Status != doors.Halted) {
		t.Errorf("calls after stop: %+v", r.calls)
	}
	r.mu.Unlock()
	r.change(func() {
		r.active(func(a *doors.Item) {
			a.Stopped, a.State, a.Answer = false, "Working", &doors.Answer{Gate: "g", Answer: "Continue", Person: "lucas"}
		})
	})
	r.until("the second call is made", func() bool { return len(r.calls) > 1 && strings.Contains(r.calls[1].Args, "/b") })
}

func TestSwitchingLosesNothing(t *testing.T) {
	r := start(t, demo(t))
	r.open("wi-1", report)
	r.until("a plan waits", r.tooled("submit_plan"))
	first := r.snap.Active
	r.open("wi-2", "what is in /srv/nisse?")
	r.until("the second item ends", r.ended("wi-2"))
	r.change(func() {
		p := *first.Plan
		p.State, p.Person = "Approved", "lucas"
		r.snap.Active = &doors.Item{Name: "wi-1", UID: "uid-wi-1", State: "Working", Plan: &p}
	})
	r.until("the first item ends", r.ended("wi-1"))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.calls {
		if m.Tool == "fs_write" && m.Item != "wi-1" {
			t.Errorf("the write was made for %s", m.Item)
		}
	}
}

// Case 16: a process that ends in the middle of a turn goes on with it, and takes the next message.
func TestARestartInTheMiddleOfATurn(t *testing.T) {
	r := start(t, demo(t))
	hold := make(chan struct{})
	r.change(func() { r.hold = hold })
	r.open("wi-1", "what is in /srv/nisse?")
	r.until("the call is under way", r.tooled("fs_list"))
	r.cfg.ToolCallsPerTurn = 12
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	r.until("the process has heard that it shall end", func() bool { return r.hungUp > 0 })
	if len(stopped) > 0 { // it waits for the call, as it should; one that is given up is made twice, which is counted below
		t.Fatalf("the process ended with a call under way: %v", <-stopped)
	}
	r.change(func() { r.hold = nil })
	close(hold)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	r.start()
	r.until("the item ends", r.ended("wi-1"))
	r.mu.Lock()
	if len(r.calls) != 2 || r.calls[0].Times != 1 {
		t.Errorf("calls: %+v", r.calls)
	}
	r.mu.Unlock()
	r.open("wi-2", "what is in /srv/nisse?")
	r.until("the next item ends", r.ended("wi-2"))
}

// Case 18: a tool that returns 2 MB.
func TestATwoMegabyteResult(t *testing.T) {
	r := start(t, scenario(t, talker))
	big := strings.Repeat("x", 2<<20)
	r.change(func() {
		r.fault = func(m made) *doors.ToolResult {
			if m.Tool == "fs_list" {
				return &doors.ToolResult{Status: doors.Done, Output: []byte(fmt.Sprintf(`{"entries":[{"name":%q}]}`, big))}
			}
			return nil
		}
	})
	r.open("wi-1", "two")
	r.until("the item ends", r.ended("wi-1"))
	for _, e := range r.events() {
		if e.Type != event.ToolResult {
			continue
		}
		var res event.Result
		if err := e.Decode(&res); err != nil {
			t.Fatal(err)
		}
		if res.Tool == "fs_list" && (res.Aside == "" || len(res.Text) > 20<<10 || !strings.Contains(res.Text, "bytes left out")) {
			t.Errorf("the event holds %d bytes, aside %q", len(res.Text), res.Aside)
		}
	}
}

// Case 21: what was rejected is not made after a restart.
func TestARejectedPlanStaysRejected(t *testing.T) {
	r := start(t, demo(t))
	r.open("wi-1", report)
	r.until("a plan waits", r.tooled("submit_plan"))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.decide("Rejected", "no")
	r.start()
	r.until("something is said or done about it", func() bool { return r.tooled("finish")() || r.tooled("ask_human")() || len(r.said()) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tooled("fs_write")() {
		t.Error("a step of the rejected plan was asked for")
	}
}

// small is a model with a small context: it refuses what does not fit, as servers do.
type small struct{ asked []int }

func (s *small) Ask(_ context.Context, r model.Request) (model.Answer, error) {
	n := prompt.Tokens(r.Messages...)
	s.asked = append(s.asked, n)
	if n > 7000 {
		return model.Answer{}, &model.Error{Kind: model.TooLong, Err: errors.New("maximum context length is 7000 tokens")}
	}
	call := func(tool, args string) model.Answer {
		return model.Answer{Calls: []model.Call{{ID: "x", Tool: tool, Args: args}}}
	}
	if len(s.asked) > 12 {
		return call("finish", `{"summary":"Read."}`), nil
	}
	return call("fs_read", fmt.Sprintf(`{"device":"web1","path":"/%d"}`, len(s.asked))), nil
}

func TestARequestThatIsTooLongIsShortened(t *testing.T) {
	m := &small{}
	r := start(t, demo(t))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.model = m
	r.change(func() {
		r.fault = func(c made) *doors.ToolResult {
			if c.Tool == "fs_read" {
				return &doors.ToolResult{Status: doors.Done, Output: []byte(`"` + strings.Repeat("x", 7000) + `"`)}
			}
			return nil
		}
	})
	r.start()
	r.open("wi-1", "read")
	r.until("the item ends", r.ended("wi-1"))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, n := range m.asked {
		if n > 7000 {
			refused++
		}
	}
	if refused == 0 || refused > 3 {
		t.Errorf("%d requests did not fit (%v); want a few, and then to have learnt", refused, m.asked)
	}
}

// A message that the gateway will never take holds up neither those behind it nor the end of the item.
func TestAMessageThatIsRefused(t *testing.T) {
	r := start(t, demo(t))
	r.change(func() {
		r.refuse = func(o doors.Outgoing) int {
			if o.Kind == doors.Progress {
				return http.StatusRequestEntityTooLarge
			}
			return 0
		}
	})
	r.open("wi-1", "what is in /srv/nisse?")
	r.until("the item ends", r.ended("wi-1"))
	r.until("the list is told", r.hears("notes.txt"))
}

// The gateway is away when the work is done: the item does not end before its summary is in the room.
func TestTheSummaryIsSaidBeforeTheEnd(t *testing.T) {
	r := start(t, demo(t))
	r.change(func() { r.refuse = func(doors.Outgoing) int { return http.StatusServiceUnavailable } })
	r.open("wi-1", "what is in /srv/nisse?")
	tries := 0
	r.until("the summary is tried again and again", func() bool { tries = r.refused; return tries > 5 })
	r.mu.Lock()
	if r.tooled("finish")() {
		t.Error("finish was called before the summary was said")
	}
	r.mu.Unlock()
	r.change(func() { r.refuse = nil })
	r.until("the item ends", r.ended("wi-1"))
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := strings.Count(strings.Join(r.said(), "\n"), "notes.txt"); n != 1 {
		t.Errorf("the summary was said %d times", n)
	}
}
