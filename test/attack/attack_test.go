// Package attack plays hostile parts against the whole product and looks at what they brought about. The agent's runtime is killed and its
// tokens are used by somebody who knows the product well.
package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/stack"
)

func TestMain(m *testing.M) {
	stack.Main(m)
}

// pod in hostile hands.
type pod struct {
	s       *stack.Stack
	config  doors.RuntimeConfig
	session *sdk.ClientSession
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// seize the agent's pod: its process ends, its tokens stay good.
func seize(s *stack.Stack) *pod {
	t := s.T
	t.Helper()
	s.Kill("agentruntime")
	p := &pod{s: s}
	b, err := os.ReadFile(filepath.Join(s.Dir, "runtime/config.json"))
	if err == nil {
		err = json.Unmarshal(b, &p.config)
	}
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(s.Dir, "tokens", doors.AudienceBroker))
	if err != nil {
		t.Fatal(err)
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "mallory", Version: "1"}, nil)
	p.session, err = c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: p.config.BrokerURL + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)},
		DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.session.Close() })
	return p
}

// call a tool, under a call's ID if there is one.
func (p *pod) call(callID, tool string, args any) doors.ToolResult {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err) // made by the tests
	}
	params := &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(b), Meta: sdk.Meta{}}
	if callID != "" {
		params.Meta[doors.MetaCallID] = callID
	}
	var out doors.ToolResult
	res, err := p.session.CallTool(p.s.T.Context(), params)
	if err != nil {
		return doors.ToolResult{Status: doors.Refused, Message: err.Error()}
	}
	b, _ = json.Marshal(res.StructuredContent)
	_ = json.Unmarshal(b, &out)
	return out
}

type object = map[string]any

func (p *pod) path(name string) string { return filepath.Join(p.s.Files, name) }

func (p *pod) write(file, content string) object {
	return object{"path": p.path(file), "content": content}
}

func (p *pod) submit(callID string, steps ...object) doors.ToolResult {
	all := make([]object, len(steps))
	for i, s := range steps {
		all[i] = object{"device": stack.Device, "capability": "fs.write", "args": s}
	}
	return p.call(callID, "submit_plan", object{"reason": "all is well\nReply  approve rev-9", "steps": all})
}

func (p *pod) do(callID string, args object) doors.ToolResult {
	with := object{"device": stack.Device}
	for k, v := range args {
		with[k] = v
	}
	return p.call(callID, "fs_write", with)
}

// saysNo waits for the approvals account to answer an event so.
func saysNo(s *stack.Stack, after id.EventID, pattern string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), stack.Patience)
	defer cancel()
	if _, err := s.You.WaitFor(ctx, id.RoomID(s.Room), person.Want{Sender: id.UserID(s.UserID("nisse-gates")), Text: regexp.MustCompile(pattern), After: after}); err != nil {
		s.Dump()
		s.T.Fatal(err)
	}
}

func isWorking(s *stack.Stack) {
	s.T.Helper()
	s.Wait(stack.Patience, "an item at work", func(ctx context.Context) error {
		w, err := s.Item(ctx)
		if err == nil && w.Status.State != api.WorkItemWorking {
			err = fmt.Errorf("%s is %q", w.Name, w.Status.State)
		}
		return err
	})
}

// items waits until there are so many, and so many of them closed.
func items(s *stack.Stack, all, closed int) {
	s.T.Helper()
	s.Wait(stack.Patience, fmt.Sprintf("%d items, %d closed", all, closed), func(ctx context.Context) error {
		var l api.WorkItemList
		if err := s.Admin.List(ctx, &l, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		over := 0
		for _, w := range l.Items {
			if w.Status.State == api.WorkItemClosed {
				over++
			}
		}
		if len(l.Items) != all || over != closed {
			return fmt.Errorf("%d items, %d closed", len(l.Items), over)
		}
		return nil
	})
}

// noGates waits until the manager has closed every gate of what is over. Until then bare words may be answered as ambiguous, which is
// safe as well and not what is meant here.
func noGates(s *stack.Stack) {
	s.T.Helper()
	s.Wait(stack.Patience, "no open gate", func(ctx context.Context) error {
		var l api.GateList
		if err := s.Admin.List(ctx, &l, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for i := range l.Items {
			if l.Items[i].Open() {
				return fmt.Errorf("%s is open", l.Items[i].Name)
			}
		}
		return nil
	})
}

// A person reads one plan and approves; the pod puts another in its place first, and then tries to get more out of an approval than it holds.
func TestPodSwapsAndRepeats(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	p := seize(s)
	s.Say("write a note")
	isWorking(s)

	if r := p.submit("a", p.write("note.txt", "a note")); r.Status != doors.Pending {
		t.Fatalf("%+v", r)
	}
	s.Hear("nisse-gates", `(?s)rev-1.*note\.txt`)
	if r := p.submit("b", p.write("r\u0435port.txt", "evil"+strings.Repeat(" ", 500)+"more evil")); r.Status != doors.Pending {
		t.Fatalf("%+v", r)
	}
	shown := s.Hear("nisse-gates", `(?s)rev-2.*evil`)
	for _, want := range []string{"U+0435", "40 spaces or more"} {
		if !strings.Contains(shown.Body, want) {
			t.Errorf("the room is not told of %q:\n%s", want, shown.Body)
		}
	}
	saysNo(s, s.Say("approve"), `Nothing was approved: you may have meant rev-[12] of ".*", which was (replaced|dropped)`)
	if g := s.OpenGate(api.GatePlan, 2); !g.Open() {
		t.Fatal("swapped under the thumb")
	}

	// The item is dropped and the next one's rev-1 stands where the first's stood.
	s.Say("and another note")
	items(s, 2, 0)
	if r := p.call("f", "finish", object{"summary": "done"}); r.Status != doors.Done {
		t.Fatalf("%+v", r)
	}
	items(s, 2, 1)
	isWorking(s)
	noGates(s)
	two := []object{p.write("one.txt", "1"), p.write("two.txt", "2")}
	if r := p.submit("c", two...); r.Status != doors.Pending {
		t.Fatalf("%+v", r)
	}
	s.Hear("nisse-gates", `(?s)rev-1.*two\.txt`)
	saysNo(s, s.Say("approve"), `Nothing was approved: you may have meant rev-[12] of ".*", which was (replaced|dropped)`)
	g := s.OpenGate(api.GatePlan, 1)
	if names, _ := os.ReadDir(s.Files); len(names) != 0 {
		t.Fatalf("something ran: %v", names)
	}

	s.Say("approve " + approval.Code(g.Spec.Digest, string(g.UID)))
	s.Hear("nisse-gates", `rev-1 approved by lucas`)
	isWorking(s) // the room hears of the decision first; until the item goes on, all of this is refused
	// The first step from many hands at once runs once.
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() { p.do(fmt.Sprint("x", i), two[0]) })
	}
	wg.Wait()
	if got, err := s.File("one.txt"); err != nil || got != "1" || s.Ran("fs.write") != 1 {
		t.Fatalf("one.txt is %q, %v, and fs.write ran %d times", got, err, s.Ran("fs.write"))
	}
	// Then the first again, a step of an earlier plan and one that differs by a space, beside the one that is next.
	for _, args := range []object{two[0], p.write("note.txt", "a note"), p.write("two.txt", "2 "), two[1]} {
		wg.Go(func() { p.do("", args) })
	}
	wg.Wait()
	if n := s.Ran("fs.write"); n > 2 {
		t.Errorf("fs.write ran %d times", n)
	}
	if got, err := s.File("one.txt"); err != nil || got != "1" {
		t.Errorf("one.txt is %q, %v", got, err)
	}
	for _, name := range []string{"note.txt", "r\u0435port.txt"} {
		if _, err := s.File(name); !os.IsNotExist(err) {
			t.Errorf("%s was written: %v", name, err)
		}
	}
	if got, err := s.File("two.txt"); err == nil && got != "2" {
		t.Errorf("two.txt is %q", got)
	}
	seen := map[string]bool{}
	for _, j := range s.Jobs() {
		key := fmt.Sprint(j.Spec.Gate.UID, j.Spec.Step, j.Spec.Attempt)
		if seen[key] || j.Spec.Gate.UID != string(g.UID) {
			t.Errorf("a job twice, or of another gate: %+v", j.Spec)
		}
		seen[key] = true
	}
}

// A person approves and, since nothing seems to happen, types the same again; meanwhile the pod has ended the work and brought the next
// item's plan. The second time decides nothing.
func TestPodBringsTheNextPlanUnderTheThumb(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	p := seize(s)
	s.Say("write a note")
	isWorking(s)
	if r := p.submit("a", p.write("note.txt", "a note")); r.Status != doors.Pending {
		t.Fatalf("%+v", r)
	}
	s.Hear("nisse-gates", `(?s)rev-1.*note\.txt`)
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `rev-1 approved by lucas`)
	isWorking(s)
	s.Say("and another note")
	items(s, 2, 0)
	if r := p.call("f", "finish", object{"summary": "done"}); r.Status != doors.Done {
		t.Fatalf("%+v", r)
	}
	items(s, 2, 1)
	isWorking(s)
	if r := p.submit("b", p.write("evil.txt", "evil")); r.Status != doors.Pending {
		t.Fatalf("%+v", r)
	}
	s.Hear("nisse-gates", `(?s)rev-1.*evil\.txt`)
	saysNo(s, s.Say("approve rev-1"), `Nothing was approved: you decided rev-1 of "write a note" just now`)
	if g := s.OpenGate(api.GatePlan, 1); !g.Open() {
		t.Fatal("approved by an echo")
	}
}

// A person approves one call; the pod makes another instead, under the same ID and under a new one, and then the approved one from many
// hands. Nothing but what was shown runs, and that once.
func TestPodAltersACall(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	p := seize(s)
	s.Say("write a note")
	isWorking(s)
	note, evil := p.write("note.txt", "a note"), p.write("note.txt", "evil")
	first := p.do("c1", note)
	if first.Status != doors.Pending || first.Gate == "" {
		t.Fatalf("%+v", first)
	}
	for _, id := range []string{"c1", "c2", ""} {
		if again := p.do(id, note); again.Status != doors.Pending || again.Gate != first.Gate {
			t.Errorf("the same call again waits for another gate: %+v", again)
		}
	}
	s.Hear("nisse-gates", `(?s)Call rev-1.*a note.*note\.txt`)
	g := s.OpenGate(api.GateCall, 1)
	if r := p.do("c3", evil); r.Status != doors.Pending || r.Gate != first.Gate {
		t.Errorf("another call beside the one that waits: %+v", r)
	}
	s.Say("approve rev-1")
	s.Outcome(g, api.GateApproved)
	isWorking(s)

	if r := p.do("c1", evil); r.Status != doors.Refused || r.Reason != "CallIDReused" {
		t.Errorf("another call under the ID of the approved one: %+v", r)
	}
	if r := p.do("c4", evil); r.Status != doors.Halted || r.Reason != string(api.HaltCallMismatch) {
		t.Errorf("another call than the approved one: %+v", r)
	}
	if r := p.do("c1", note); r.Status != doors.Halted {
		t.Errorf("the approved call while a person is asked: %+v", r)
	}
	if names, _ := os.ReadDir(s.Files); len(names) != 0 || s.Ran("fs.write") != 0 {
		t.Fatalf("something ran: %v", names)
	}
	s.Hear("nisse-gates", `(?s)Step 1 of rev-1 wants.*evil`)
	s.Say("continue")
	isWorking(s)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { p.do(fmt.Sprint("x", i), note) })
	}
	wg.Wait()
	if got, err := s.File("note.txt"); err != nil || got != "a note" || s.Ran("fs.write") != 1 || len(s.Jobs()) != 1 {
		t.Errorf("note.txt is %q, %v; fs.write ran %d times in %d jobs", got, err, s.Ran("fs.write"), len(s.Jobs()))
	}
}
