package modelcheck

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"nisse.io/nisse/agentruntime/event"
	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/manifest"
)

// judgeAll looks at what a life has left behind, once the world is quiet and the item has ended.
func (h *house) judgeAll() {
	h.check()
	h.deedsAndJobs()
	h.saidOnce()
	h.log()
	h.reboot()
}

// deedsAndJobs: each job tells the truth, each plan's call was taken once, and in a life in which nobody went astray every step of
// the last plan ran, or its end is known to nobody and a person was asked.
func (h *house) deedsAndJobs() {
	ran := h.runs()
	of := map[string]*api.DeviceJob{}
	for _, name := range sortedJobs(h.cluster) {
		j := h.cluster.jobs[name]
		var a manifest.ExecArgs
		h.must(json.Unmarshal([]byte(j.Spec.Args), &a))
		target := base(a.Argv[len(a.Argv)-1])
		of[target] = &j
		n := ran[target]
		switch j.Status.State {
		case api.JobSucceeded:
			if n != 1 {
				h.Fatalf("%s succeeded and ran %d times", target, n)
			}
		case api.JobUnknown:
		default:
			if n != 0 {
				h.Fatalf("%s is %s and ran %d times", target, j.Status.State, n)
			}
		}
	}
	for target := range ran {
		if strings.HasPrefix(target, "plan") && of[target] == nil {
			h.Fatalf("%s ran and has no job", target)
		}
	}
	byCall := map[string]string{}
	for _, p := range h.cluster.plans {
		if other, ok := byCall[p.Spec.CallID]; ok {
			h.Fatalf("one call made two plans: %s and %s", other, p.Name)
		}
		byCall[p.Spec.CallID] = p.Name
	}
	if h.straight && len(h.cluster.plans) < enough {
		if o := h.cluster.item.Status.Outcome; o == nil || o.Result != api.ResultDone {
			h.Fatalf("nobody erred, and the item ended with %+v", o)
		}
		last := h.cluster.plans[len(h.cluster.plans)-1]
		for i, s := range last.Spec.Steps {
			var a manifest.ExecArgs
			h.must(json.Unmarshal([]byte(s.Args), &a))
			j := of[base(a.Argv[len(a.Argv)-1])]
			if j == nil || (j.Status.State != api.JobSucceeded && j.Status.State != api.JobUnknown) {
				h.Fatalf("nobody erred, and step %d of %s has not run", i+1, last.Name)
			}
		}
	}
}

func base(path string) string {
	name, _, _ := strings.Cut(path[strings.LastIndex(path, "/")+1:], ".")
	return name
}

var wordsOfModel = regexp.MustCompile(`words \d+\.`)

// saidOnce: nothing is said twice.
func (h *house) saidOnce() {
	said := map[string]doors.Outgoing{}
	for _, o := range h.room.out {
		for _, w := range wordsOfModel.FindAllString(o.Text, -1) {
			if have, ok := said[w]; ok {
				h.Fatalf("said twice: %+v and %+v", have, o)
			}
			said[w] = o
		}
	}
}

// log: everything that was posted is in it, everything that was done outside is in it, and it says of nothing that it was not made
// that was.
func (h *house) log() {
	for _, l := range h.room.all {
		if !h.rt.knows("matrix/" + l.ID) {
			h.Fatalf("%q was never heard", l.Text)
		}
	}
	wanted := map[string]string{}
	h.must(h.rt.log.Each(context.Background(), func(e event.Event) error {
		switch e.Type { //nolint:exhaustive // calls and results are all that is compared
		case event.ToolCall:
			var c event.Call
			h.must(e.Decode(&c))
			wanted[c.ID] = c.Tool + " " + c.Args
		case event.ToolResult:
			var r event.Result
			h.must(e.Decode(&r))
			_, made := h.made[r.Call]
			if made != (r.Origin == event.Tool) {
				h.Fatalf("call %s (%s): made %v, its result is from %s: %s", r.Call, wanted[r.Call], made, r.Origin, r.Text)
			}
			if r.Status == doors.Done && r.Step > 0 && !h.succeeded(r) {
				h.Fatalf("call %s (%s) is done by the log: %s", r.Call, wanted[r.Call], r.Text)
			}
		}
		return nil
	}))
	for id, body := range h.made {
		if wanted[id] != body {
			h.Fatalf("call %s was made as %s, and by the log it was wanted as %q", id, body, wanted[id])
		}
	}
}

func (h *house) succeeded(r event.Result) bool {
	for _, j := range h.cluster.jobs {
		if j.Spec.Gate.Name == r.Gate && j.Spec.Step == r.Step && j.Status.State == api.JobSucceeded {
			return true
		}
	}
	return false
}

// reboot: one more process finds nothing to do.
func (h *house) reboot() {
	h.rt.die()
	h.rt.start()
	h.rt.observe()
	h.rt.advance()
	intents, err := h.rt.log.Intents(context.Background())
	h.must(err)
	if h.rt.flight != nil || len(intents) > 0 {
		h.Fatalf("the work has ended, and the runtime begins %+v, with %d intents", h.rt.flight, len(intents))
	}
}
