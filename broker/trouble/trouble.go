// Package trouble takes in what an agent's runtime says keeps it from going on, and files it where people look: in the item's status.
// What it says is the pod's word, like all that a pod says; it is shown and decides nothing.
package trouble

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/live"
	"nisse.io/nisse/broker/report"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
	"nisse.io/nisse/internal/rates"
)

const (
	// Each report may be a write: a runtime whose model comes and goes needs few, and a pod that does nothing else gets no more.
	perSecond = 0.2
	atOnce    = 10
	maxBody   = 16 << 10
)

// Door serves POST /v1/trouble to pods that podauth let through. All fields are required.
type Door struct {
	Live     live.Reader
	Report   report.Writer
	Requests *rates.Buckets
	Log      *slog.Logger
}

func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := podauth.Rate{Buckets: d.Requests, PerSecond: perSecond, AtOnce: atOnce, Message: "too many reports; slow down"}.Admit(w, r)
	if !ok {
		return
	}
	var t doors.Trouble
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&t); err != nil {
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", "the body is no report: "+err.Error())
		return
	}
	if t.WorkItem == "" || (t.Reason != "" && t.Reason != doors.TroubleModel) {
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", "workItem must name the item, and reason be "+doors.TroubleModel+" or empty")
		return
	}
	world, err := d.Live.World(r.Context(), id.Agent, "", "")
	if err != nil {
		d.fail(w, id.Agent, err)
		return
	}
	if no := judge.Meant(t.WorkItem, world); no != nil || world.Item == nil {
		podauth.Problem(w, http.StatusConflict, judge.OtherWorkItem, t.WorkItem+" is not what the agent works on")
		return
	}
	var said *v1alpha1.TroubleReport
	if t.Reason != "" {
		said = &v1alpha1.TroubleReport{Reason: v1alpha1.TroubleReason(t.Reason), Message: t.Message}
	}
	if err := d.Report.Trouble(r.Context(), world.Item, said); err != nil {
		d.fail(w, id.Agent, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// fail of the cluster, not of the caller, who comes again.
func (d *Door) fail(w http.ResponseWriter, agent string, err error) {
	d.Log.Warn("trouble.not_filed", "agent", agent, "err", err)
	podauth.Problem(w, http.StatusServiceUnavailable, "Unavailable", "the cluster cannot be written now; try again")
}
