package matrix

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"maunium.net/go/mautrix"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/telemetry"
)

// maxDoublings of the time between attempts at a message that is refused: with 15 s, a quarter of an hour.
const maxDoublings = 6

// maxTries at a message that nobody must read, where what bars it may not do so for ever: with 15 s, half an hour.
const maxTries = 8

// refuse takes note that the homeserver will not take a message. It is tried again, the first time at once and plainly, then more and
// more rarely: tries times in all, or for ever if somebody must read it; and then people are told where to read it meanwhile.
func (a *Account) refuse(ctx context.Context, o store.Outbound, reason string, tries int) error {
	var wait time.Duration
	if o.Refusals > 0 {
		wait = a.Timing.Retry << min(o.Refusals, maxDoublings)
	}
	failed, err := a.Store.Refused(ctx, o.ID, reason, tries, time.Now().Add(wait), store.Outbound{
		ID: "hidden/" + o.ID, Sender: o.Sender, Agent: o.Agent, WorkItem: o.WorkItem, Room: o.Room,
		Content: render.Text("Something waits for a decision, and this homeserver refuses to show it (" + reason + "). It is tried again. Meanwhile see `kubectl get gates -A -l " +
			v1alpha1.LabelWorkItem + "=" + o.WorkItem + " -o yaml` and decide there.").JSON(),
	})
	if err != nil {
		return err
	}
	metrics.Refused.WithLabelValues(kind(o.ID)).Inc()
	advice := "see what the homeserver's own log says about it; the message is lost to the room, and what follows it is shown without it"
	switch {
	case failed:
	case o.Must:
		advice = "see what the homeserver's own log says about it; it is tried again, and until then the gate can be decided with kubectl"
	default:
		advice = "see what the homeserver's own log, or that of what stands before it, says about it; it is tried again for a while"
	}
	a.log.WarnContext(ctx, "send.refused", "id", o.ID, "room", o.Room, "error", reason, "again", !failed, "advice", advice)
	if failed {
		telemetry.Changed(ctx, a.log, "message.refused", telemetry.Event{Agent: o.Agent, TaskID: a.task(ctx, o), Cause: o.ID})
	}
	o.Refusals++
	a.hidden(o)
	return nil
}

// hidden tells that what must be read and is refused may have changed by this message.
func (a *Account) hidden(o store.Outbound) {
	if o.Refusals > 0 && a.Hidden != nil {
		a.Hidden(o.Agent)
	}
}

// kind of an outbound, of which there are few.
func kind(id string) string {
	k, _, _ := strings.Cut(id, "/")
	return k
}

// refused tells whether the homeserver will never take this message.
func refused(err error) bool {
	var he mautrix.HTTPError
	return errors.As(err, &he) && !away(err) && !errors.Is(err, mautrix.MUnknownToken) &&
		(he.IsStatus(http.StatusBadRequest) || he.IsStatus(http.StatusRequestEntityTooLarge))
}

// barred tells whether a message was not let through: by the homeserver, one of its modules, or what stands before it and reads along.
// It may be about us, about these words, and not for ever.
func barred(err error) bool {
	var he mautrix.HTTPError
	switch {
	case !errors.As(err, &he) || he.Response == nil || errors.Is(err, mautrix.MUnknownToken):
		return false
	case he.RespError != nil && he.RespError.ErrCode != "":
		return errors.Is(err, mautrix.MForbidden)
	}
	return slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotAcceptable, http.StatusRequestEntityTooLarge}, he.Response.StatusCode)
}
