//go:build bench

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"maunium.net/go/mautrix/id"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/stack"
)

var auditLog string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nisse-bench-")
	if err != nil {
		panic(err)
	}
	auditLog = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "policy.yaml")
	level := "Metadata"
	if os.Getenv("BENCH_BODIES") != "" {
		level = "Request"
	}
	if err := os.WriteFile(policy, []byte(fmt.Sprintf(Policy, level)), 0o600); err != nil {
		panic(err)
	}
	apitest.Configure(func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", auditLog)
		// Tests trade the disk's promise for speed; whoever reads figures wants it kept.
		e.ControlPlane.Etcd = &envtest.Etcd{}
		e.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "false")
	})
	stack.Main(m)
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, v)
	}
	return n
}

func load(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

func heading(format string, args ...any) { fmt.Printf("\n### "+format+"\n\n", args...) }

// rig is one stack and what is known of its past.
type rig struct {
	*stack.Stack
	t *testing.T
	// offsets up to which logs were read.
	offsets map[string]int64
	lines   map[string][]Line
	audit   []Request
	// figures for the table at the head of docs/performance.md.
	figures [][]string
}

// figure for the table at the head of docs/performance.md.
func (r *rig) figure(name, goal, format string, args ...any) {
	r.figures = append(r.figures, []string{name, goal, fmt.Sprintf(format, args...)})
}

func (r *rig) read() {
	r.t.Helper()
	for _, name := range stack.Components {
		more, end, err := ReadLog(r.Log(name), r.offsets[name])
		if err != nil {
			r.t.Fatal(err)
		}
		r.lines[name], r.offsets[name] = append(r.lines[name], more...), end
	}
	more, end, err := ReadAudit(auditLog, r.offsets["audit"])
	if err != nil {
		r.t.Fatal(err)
	}
	r.audit, r.offsets["audit"] = append(r.audit, more...), end
}

// line waits for a line of a component.
func (r *rig) line(component string, want func(Line) bool) Line {
	r.t.Helper()
	var found Line
	r.Wait(stack.Patience, "a line of "+component, func(context.Context) error {
		r.read()
		for _, l := range r.lines[component] {
			if want(l) {
				found = l
				return nil
			}
		}
		return fmt.Errorf("%d lines, none of them", len(r.lines[component]))
	})
	return found
}

// request waits for a request of the audit log.
func (r *rig) request(verb, kind, name string) Request {
	r.t.Helper()
	var found Request
	r.Wait(stack.Patience, verb+" "+kind+" "+name, func(context.Context) error {
		r.read()
		for _, q := range r.audit {
			if q.Verb == verb && q.Kind == kind && q.Name == name && q.Kept() {
				found = q
				return nil
			}
		}
		return fmt.Errorf("%d requests, none of them", len(r.audit))
	})
	return found
}

func TestBench(t *testing.T) {
	often := int32(1000) // nobody works that fast but a bench
	fast := func(a *api.Agent) { a.Spec.Limits = &api.Limits{ToolCallsPerMinute: &often} }
	r := &rig{Stack: stack.Start(t, stack.Options{Agent: fast}), t: t, offsets: map[string]int64{}, lines: map[string][]Line{}}
	n := number(t, "N", 50)
	fmt.Printf("\nLoad at the start: %s\n", load(t))
	r.decisions("typed in the room", 1, func(int, *api.Gate) decided { return decided{} }, false) // the first is cold
	r.decisions("typed in the room", n, r.byWords, true)
	r.decisions("with kubectl", n, r.byKubectl, true)
	r.idle(time.Duration(number(t, "IDLE_MINUTES", 2)) * time.Minute)
	r.memory()
	r.device(number(t, "CALLS", 200))
	heading("All in all")
	if err := Table(os.Stdout, append([][]string{{"figure", "goal", "measured"}}, r.figures...)); err != nil {
		t.Fatal(err)
	}
}

// decided is when a decision was accepted, and the way up to its Approval.
type decided struct {
	at       time.Time
	marks    []Mark
	approval string
}

// byWords decides by the code: the same words as a moment ago, about another item's plan, would be asked about.
func (r *rig) byWords(_ int, g *api.Gate) decided {
	r.t.Helper()
	e := r.Say("approve " + approval.Code(g.Spec.Digest, string(g.UID)))
	evt, err := r.You.Client().GetEvent(r.t.Context(), id.RoomID(r.Room), e)
	if err != nil {
		r.t.Fatal(err)
	}
	stored := r.line("gateway", func(l Line) bool { return l.Event == "message.stored" && l.Cause == e.String() })
	var name string
	r.Wait(stack.Patience, "an approval", func(ctx context.Context) error {
		var l api.ApprovalList
		if err := r.Admin.List(ctx, &l, client.InNamespace(r.Namespace)); err != nil {
			return err
		}
		for _, a := range l.Items {
			if m := a.Spec.Channel.Matrix; m != nil && m.EventID == e.String() {
				name = a.Name
				return nil
			}
		}
		return fmt.Errorf("%d approvals, none of them", len(l.Items))
	})
	return decided{at: time.UnixMilli(evt.Timestamp), approval: name, marks: []Mark{{"homeserver accepts → row in the gateway's inbox", stored.At}}}
}

func (r *rig) byKubectl(n int, g *api.Gate) decided {
	r.t.Helper()
	name := fmt.Sprintf("kubectl-%d", n)
	if err := r.Decide(g, name, nil); err != nil {
		r.t.Fatal(err)
	}
	return decided{at: r.request("create", "approvals", name).Received, approval: name}
}

// decisions plays items one after the other and prints where their time goes and what they write.
func (r *rig) decisions(how string, n int, decide func(int, *api.Gate) decided, print bool) {
	r.t.Helper()
	var ways Ways
	r.read()
	before, began := len(r.audit), load(r.t)
	for i := range n {
		r.Say(fmt.Sprintf("Write the disk usage of the machine into %s/%s-%d.txt", r.Files, strings.Fields(how)[len(strings.Fields(how))-1], i))
		g := r.OpenGate(api.GatePlan, 1)
		r.line("gateway", func(l Line) bool { return l.Event == "message.sent" && strings.Contains(l.Cause, string(g.UID)) })
		d := decide(i, g)
		if d.approval == "" {
			d = r.byWords(i, g)
		}
		r.Closed(api.ResultDone)
		marks, err := r.marks(g, d)
		if err == nil {
			err = ways.Add(d.at, marks)
		}
		if err != nil {
			r.t.Fatalf("item %d: %v", i, err)
		}
	}
	if !print {
		return
	}
	ended := load(r.t)
	heading("Decision accepted → step starts, %s (N=%d, load %s → %s)", how, n, began, ended)
	r.figure("decision → step starts, "+how+", p50 / p99", "50 / 250 ms", "**%s / %s ms** (N=%d, load %s → %s)", ms(ways.Whole(50)), ms(ways.Whole(99)), n, began, ended)
	if err := ways.Print(os.Stdout); err != nil {
		r.t.Fatal(err)
	}
	r.quiet()
	r.writes(how, n, before)
}

// marks of the way from an Approval to the device.
func (r *rig) marks(g *api.Gate, d decided) ([]Mark, error) {
	r.t.Helper()
	made := r.request("create", "approvals", d.approval)
	outcome := r.request("patch", "gates/status", g.Name)
	var job *api.DeviceJob
	for _, j := range r.Jobs() {
		if j.Spec.Gate.UID == string(g.UID) {
			job = &j
		}
	}
	if job == nil || job.Status.StartedAt == nil {
		return nil, fmt.Errorf("no job of %s has started", g.Name)
	}
	asked := r.request("create", "devicejobs", job.Name)
	heard := r.line("agentruntime", func(l Line) bool {
		return l.Event == "event.appended" && strings.HasPrefix(l.Source, "plan/") && strings.Contains(l.Source, g.Name+"/Approved")
	})
	ask := r.line("agentruntime", func(l Line) bool { return l.Event == "intent.begun" && l.Kind == "ask" && !l.At.Before(heard.At) })
	answer := r.line("agentruntime", func(l Line) bool { return l.Event == "intent.settled" && l.Intent == ask.Intent })
	call := r.line("agentruntime", func(l Line) bool { return l.Event == "intent.begun" && l.Kind == "call" && !l.At.Before(answer.At) })
	var model time.Time
	for _, q := range r.Model.Requests() {
		if !q.At.Before(ask.At) && q.At.Before(answer.At) {
			model = q.At
		}
	}
	return append(d.marks,
		Mark{"Approval stored", made.Answered},
		Mark{"manager has judged it (live)", outcome.Received},
		Mark{"outcome committed with its statement", outcome.Answered},
		Mark{"in the runtime's event log, by the work stream", heard.At},
		Mark{"intent to ask the model in the event log", ask.At},
		Mark{"tools listed, model asked", model},
		Mark{"model's answer in the event log", answer.At},
		Mark{"call's intent in the event log", call.At},
		Mark{"broker has judged the call (a live look, a probe of the device)", asked.Received},
		Mark{"DeviceJob stored", asked.Answered},
		Mark{"device starts (the last live look, the fence, the device's own checks)", job.Status.StartedAt.Time},
	), nil
}

// quiet waits until nothing was written for a while, so that what follows is not counted to what was before.
func (r *rig) quiet() {
	r.t.Helper()
	seen, since := -1, time.Now()
	r.Wait(stack.Patience, "quiet", func(context.Context) error {
		r.read()
		n := 0
		for _, q := range r.audit {
			if q.Kept() && !q.Lease() {
				n++
			}
		}
		if n != seen {
			seen, since = n, time.Now()
		}
		if quiet := time.Since(since); quiet < 5*time.Second {
			return fmt.Errorf("the last write was %s ago", quiet)
		}
		return nil
	})
}

func (r *rig) writes(how string, n, before int) {
	r.t.Helper()
	var kept []Request
	var lost []Request
	for _, q := range r.audit[before:] {
		switch {
		case q.Kept() && !q.Lease():
			kept = append(kept, q)
			if os.Getenv("BENCH_BODIES") != "" {
				fmt.Printf("%s %s %s %s %s %s\n", q.Received.Format("05.000000"), q.User, q.Verb, q.Kind, q.Name, q.Body)
			}
		case q.Code == 409:
			lost = append(lost, q)
		}
	}
	heading("Writes to the API of one item, from opening to close, %s (mean of %d)", how, n)
	rows := [][]string{{"kind", "who", "verb", "an item"}}
	each := func(count int) string { return fmt.Sprintf("%.2f", float64(count)/float64(n)) }
	total, events := 0, 0
	for _, c := range Counts(kept) {
		rows = append(rows, []string{c.Kind, c.Who, c.Verb, each(c.N)})
		if c.Kind == "events" {
			events += c.N
		}
		total += c.N
	}
	rows = append(rows, []string{"all", "", "", each(total)})
	for _, c := range Counts(lost) {
		rows = append(rows, []string{"refused for a conflict, and made again: " + c.Kind, c.Who, c.Verb, each(c.N)})
	}
	r.figure("API writes of one item with one approved step, "+how, "10", "**%s**, of them Events %s; beside them refused for a conflict %s", each(total), each(events), each(len(lost)))
	if err := Table(os.Stdout, rows); err != nil {
		r.t.Fatal(err)
	}
}
