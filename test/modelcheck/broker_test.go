package modelcheck

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/dispatch"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

// request is one attempt at a call, as far as the broker has come with it.
type request struct {
	item, id, tool string
	args           json.RawMessage
	stage          stage
	job            string
	fresh          bool
	answer         *doors.ToolResult
}

type stage int

const (
	arrived stage = iota
	settling
	sent
)

func (r *request) ends(res doors.ToolResult) { r.answer = &res }

func refused(reason string) doors.ToolResult {
	return doors.ToolResult{Status: doors.Refused, Reason: reason}
}

// serveOne goes on with one request, whichever.
func (h *house) serveOne() {
	h.forgetServed()
	if len(h.broker) > 0 {
		h.serve(h.broker[h.rng.IntN(len(h.broker))])
	}
}

func (h *house) serveAll() {
	for _, r := range slices.Clone(h.broker) {
		for range 3 {
			h.serve(r)
		}
	}
	h.forgetServed()
}

func (h *house) forgetServed() {
	h.broker = slices.DeleteFunc(h.broker, func(r *request) bool { return r.answer != nil })
}

func (h *house) serve(r *request) {
	switch {
	case r.answer != nil:
		return
	case r.stage == settling:
		h.settle(r.job, r.fresh, r)
	case r.stage == sent:
		if !slices.ContainsFunc(h.net, func(p packet) bool { return p.from == r }) {
			h.lost(r)
		}
	default:
		h.take(r)
	}
	if r.answer != nil {
		h.note("answer to %s: %s %s step %d", r.id, r.answer.Status, r.answer.Reason, r.answer.Step)
	}
}

// lost: no answer came from the device.
func (h *house) lost(r *request) {
	if r.job == "" {
		r.ends(refused(judge.DeviceAway))
		return
	}
	r.stage, r.fresh = settling, false
	h.settle(r.job, false, r)
}

// take a request that has just arrived.
func (h *house) take(r *request) {
	tool, ok := h.tools[r.tool]
	if !ok {
		r.ends(refused("InvalidCall"))
		return
	}
	args, err := tool.Arguments(r.args)
	if err != nil {
		r.ends(refused(judge.BadArguments))
		return
	}
	w := h.view()
	if no := judge.Meant(r.item, w); no != nil {
		if it := h.cluster.item; r.tool == tools.Finish && it.Status.Runtime != nil && it.Status.Runtime.Finished != nil {
			r.ends(doors.ToolResult{Status: doors.Done})
			return
		}
		r.ends(dispatch.Result(*no))
		return
	}
	switch r.tool {
	case tools.SubmitPlan:
		r.ends(h.submitPlan(r.id, args))
	case tools.AskHuman:
		r.ends(h.askHuman(r.id, args))
	case tools.Finish:
		r.ends(h.finish(args))
	default:
		device, rest, err := tools.SplitDevice(args)
		h.must(err)
		h.call(r, judge.Call{ID: r.id, Device: device, Capability: tool.Capability, Args: rest})
	}
}

func (h *house) call(r *request, c judge.Call) {
	d := h.judge(c)
	switch d.Verdict {
	case judge.Free:
		id := deed.Free(string(h.agent.UID), string(h.cluster.item.UID)+"/"+c.ID)
		body, err := wire.SignRequest(h.keys["request"], wire.Request{V: wire.Version, Device: c.Device, ManifestDigest: h.digest, Capability: c.Capability, Args: c.Args,
			Deed: id, At: h.now.Unix(), ExpiresAt: h.now.Unix() + 60, CorrelationID: "wi", Agent: "ops"})
		h.must(err)
		h.net = append(h.net, packet{body: body, deed: id, from: r})
		r.stage = sent
	case judge.Run:
		_, old := h.cluster.jobs[names.Job(deed.Approved(string(d.Gate.UID), d.Step, d.Attempt))]
		r.job, r.fresh, r.stage = h.makeJob(d), !old, settling
		if j := h.cluster.jobs[r.job]; !old {
			j.Annotations = map[string]string{judge.AnnotationCallID: c.ID}
			h.cluster.jobs[r.job] = j
		}
	case judge.Attach:
		r.job, r.stage = d.Job.Name, settling
	case judge.Ask:
		if h.proposed(c.Args) {
			r.ends(refused(nagging))
			return
		}
		h.asked++
		r.ends(h.store(c.ID, "", true, []api.PlanStep{{Device: c.Device, Capability: c.Capability, Args: c.Args, ManifestDigest: h.digest, Resolved: program()}}))
	case judge.Halt:
		h.halt(d.HaltID, api.HaltReason(d.Reason), d.Message, d.Step)
		r.ends(doors.ToolResult{Status: doors.Halted, Reason: d.Reason, Step: d.Step})
	default:
		r.ends(dispatch.Result(d))
	}
}

func (h *house) report() *api.WorkItemRuntime {
	if h.cluster.item.Status.Runtime == nil {
		h.cluster.item.Status.Runtime = &api.WorkItemRuntime{}
	}
	return h.cluster.item.Status.Runtime
}

func (h *house) halt(id string, reason api.HaltReason, message string, step int32) {
	if id == "" {
		id = fmt.Sprint("halt", h.next())
	}
	rt := h.report()
	if h.cluster.item.Halted() || (rt.Halt != nil && rt.Halt.ID == id) {
		return
	}
	rt.Halt = &api.HaltReport{ID: id, Reason: reason, Message: message, Step: step, At: stamp(h)}
}

// settle a job as far as the device's word goes. r is who waits for it, if anybody.
func (h *house) settle(name string, fresh bool, r *request) {
	tell := func() {
		if j := h.cluster.jobs[name]; r != nil {
			r.ends(dispatch.FromJob(&j))
		}
	}
	j := h.cluster.jobs[name]
	if j.Status.State != "" {
		tell()
		return
	}
	if !fresh {
		a := h.ask(j.Spec.Deed)
		switch {
		case a.State != wire.NotSeen:
			h.record(name, ended(a))
			tell()
			return
		case a.Now >= j.Spec.ExpiresAt.Unix():
			h.record(name, api.JobExpired)
			tell()
			return
		}
	}
	if judge.StillGood(&j, h.view()) != nil {
		tell()
		return
	}
	h.send(j)
	if r != nil {
		h.net[len(h.net)-1].from, r.stage = r, sent
	}
}

// ask the device how a deed stands.
func (h *house) ask(id string) wire.Answer {
	path := "/v1/deeds/" + id
	header, err := wire.SignQuery(h.keys["request"], wire.Query{V: wire.Version, Device: "d", Path: path, At: h.now.Unix(), ExpiresAt: h.now.Unix() + 30, Nonce: fmt.Sprint(h.next())})
	h.must(err)
	rec, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	q.Header.Set(wire.QueryHeader, header)
	h.handler.ServeHTTP(rec, q)
	a, err := wire.OpenAnswer(rec.Body.Bytes(), public(h.keys["device"]), "d", id)
	h.must(err)
	return a
}

// record a job's end, once.
func (h *house) record(name string, s api.JobState) {
	j := h.cluster.jobs[name]
	if s == "" || j.Status.State != "" {
		return
	}
	h.note("step %d of %s: %s", j.Spec.Step, j.Spec.Gate.Name, s)
	j.Status.State = s
	h.cluster.jobs[name] = j
	if s == api.JobUnknown && !h.cluster.item.Over() {
		h.halt(deed.UnknownHalt(j.Spec.Deed), api.HaltOutcomeUnknown, judge.UnknownMessage(&j), j.Spec.Step)
	}
}

// resolve the jobs that nobody waits for.
func (h *house) resolve() {
	for _, name := range sortedJobs(h.cluster) {
		if h.cluster.jobs[name].Status.State == "" && !slices.ContainsFunc(h.net, func(p packet) bool { return p.job == name }) {
			h.settle(name, false, nil)
		}
	}
}

func (h *house) submitPlan(id string, args json.RawMessage) doors.ToolResult {
	w := h.view()
	for _, no := range []*judge.Decision{judge.Tool(tools.SubmitPlan, w.Agent), judge.Item(w)} {
		if no != nil {
			return dispatch.Result(*no)
		}
	}
	var in struct {
		Reason string
		Steps  []struct {
			Device, Capability string
			Args               json.RawMessage
		}
	}
	h.must(json.Unmarshal(args, &in))
	var steps []api.PlanStep
	for _, s := range in.Steps {
		a, err := tools.Capability(s.Capability, s.Args)
		if err != nil {
			return refused(judge.BadArguments)
		}
		allowed, no := judge.Allows(w)
		if no == nil {
			_, no = judge.Listed(judge.Call{Device: s.Device, Capability: s.Capability, Args: string(a)}, allowed)
		}
		if no != nil {
			return dispatch.Result(*no)
		}
		steps = append(steps, api.PlanStep{Device: s.Device, Capability: s.Capability, Args: string(a), ManifestDigest: h.digest,
			Resolved: program()})
	}
	for i := range h.cluster.plans {
		if p := &h.cluster.plans[i]; p.Spec.CallID == id {
			return pending(p)
		}
	}
	if latest := judge.Latest(w); latest != nil && !latest.Spec.Call {
		if latest.Spec.Revision > h.cluster.item.Status.ClosedRevision && slices.Equal(latest.Spec.Steps, steps) {
			if g := judge.GateOf(latest, h.cluster.gates); g == nil || g.Open() {
				return pending(latest)
			}
		}
	}
	return h.store(id, in.Reason, false, steps)
}

func pending(p *api.Plan) doors.ToolResult {
	return doors.ToolResult{Status: doors.Pending, Gate: names.PlanGate(p.Name), Revision: p.Spec.Revision}
}

// store a plan, or a call that is asked about.
func (h *house) store(id, reason string, call bool, steps []api.PlanStep) doors.ToolResult {
	rev := int32(1)
	if latest := judge.Latest(h.view()); latest != nil {
		rev = latest.Spec.Revision + 1
	}
	h.cluster.plans = append(h.cluster.plans, api.Plan{ObjectMeta: metav1.ObjectMeta{Name: names.Plan("wi", rev), UID: types.UID(fmt.Sprint("plan", h.next())), CreationTimestamp: stamp(h)},
		Spec: api.PlanSpec{Agent: "ops", AgentUID: "agent", WorkItem: api.ObjectRef{Name: "wi", UID: "item"}, Revision: rev, CallID: id, ToolSchemaDigest: manifest.SchemaDigest(),
			Body: reason, Call: call, Steps: steps}})
	return pending(&h.cluster.plans[len(h.cluster.plans)-1])
}

func (h *house) askHuman(id string, args json.RawMessage) doors.ToolResult {
	w := h.view()
	for _, no := range []*judge.Decision{judge.Tool(tools.AskHuman, w.Agent), judge.Item(w)} {
		if no != nil {
			return dispatch.Result(*no)
		}
	}
	var in struct{ Question string }
	h.must(json.Unmarshal(args, &in))
	q, rt, it := api.Question{ID: "q-" + id, Text: in.Question}, h.report(), &h.cluster.item
	if !it.Asking() && (rt.Question == nil || rt.Question.ID != q.ID) {
		rt.Question = &q
	}
	switch {
	case !it.Asking():
		return doors.ToolResult{Status: doors.Done}
	case rt.Question.ID != q.ID && rt.Question.Text != q.Text:
		return refused("QuestionOpen")
	}
	return doors.ToolResult{Status: doors.Pending}
}

func (h *house) finish(args json.RawMessage) doors.ToolResult {
	w := h.view()
	rt := h.report()
	if rt.Finished != nil {
		return doors.ToolResult{Status: doors.Done}
	}
	if no := judge.Item(w); no != nil {
		return dispatch.Result(*no)
	}
	if h.unsettled() {
		return refused(judge.StepPending)
	}
	var in struct{ Summary string }
	h.must(json.Unmarshal(args, &in))
	rt.Finished = &api.FinishReport{Summary: in.Summary, At: stamp(h)}
	return doors.ToolResult{Status: doors.Done}
}
