package modelcheck

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/dispatch"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/doors"
)

func sortedJobs(c *cluster) []string { return slices.Sorted(maps.Keys(c.jobs)) }

// deliverOne packet, now and perhaps later again. Its answer may get lost.
func (h *house) deliverOne() {
	if len(h.net) == 0 {
		return
	}
	i := h.rng.IntN(len(h.net))
	p := h.net[i]
	if !h.mishap(0.2) {
		h.net = slices.Delete(h.net, i, i+1)
	}
	h.arrive(p, !h.mishap(0.2))
}

func (h *house) deliverAll() {
	for len(h.net) > 0 {
		p := h.net[0]
		h.net = h.net[1:]
		h.arrive(p, true)
	}
}

func (h *house) loseOne() {
	if len(h.net) > 0 {
		i := h.rng.IntN(len(h.net))
		h.net = slices.Delete(h.net, i, i+1)
	}
}

// arrive at the device; the answer goes to the request that sent the packet, if a broker still holds it.
func (h *house) arrive(p packet, answered bool) {
	body, ok := h.post(p.body)
	h.note("a packet for %.8s arrives; answered %v", p.deed, ok && answered)
	r := p.from
	if !ok || !answered || r == nil || r.answer != nil || r.stage != sent || !slices.Contains(h.broker, r) {
		return
	}
	a, err := wire.OpenAnswer(body, public(h.keys["device"]), "d", p.deed)
	h.must(err)
	if p.job == "" {
		r.ends(readOnly(a))
		return
	}
	h.record(p.job, ended(a))
	j := h.cluster.jobs[p.job]
	r.ends(dispatch.FromJob(&j))
}

func readOnly(a wire.Answer) doors.ToolResult {
	switch ended(a) {
	case api.JobSucceeded:
		return doors.ToolResult{Status: doors.Done}
	case api.JobFailed:
		return doors.ToolResult{Status: doors.Failed}
	case api.JobUnknown:
		return doors.ToolResult{Status: doors.Unknown}
	case api.JobRefused, api.JobExpired:
	}
	return refused(string(a.Reason))
}

func (h *house) deviceDies() {
	h.crash()
	if !h.mutant.deviceForgets {
		return
	}
	_ = h.daemon.Close()
	files, err := filepath.Glob(filepath.Join(h.dir, "state", "device.db*"))
	h.must(err)
	for _, f := range files {
		h.must(os.Remove(f))
	}
	h.start()
}

// deviceDiesWriting lets a packet arrive and the device fail at what it writes next. Without its table a device still reads, so this
// concerns what needs approval.
func (h *house) deviceDiesWriting() {
	i := slices.IndexFunc(h.net, func(p packet) bool { return p.job != "" })
	if i < 0 {
		return
	}
	h.fault = true
	h.arrive(h.net[i], false)
	h.deviceDies()
}
