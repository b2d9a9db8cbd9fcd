package mailbox

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/progress"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
)

// What is kept of a message beside its text: at most so many bytes, measured with the longest ID. A line of progress is kept in its message,
// which has a limit of its own; its ID is forgotten after some more lines.
const (
	besideSay      = 1 << 10
	besideProgress = 256
)

// cost of a message in bytes of the store.
func cost(out doors.Outgoing) int64 {
	beside := besideSay
	if out.Kind == doors.Progress {
		beside = besideProgress
	}
	return int64(len(out.Text) + beside)
}

// put what an agent says where it belongs. It tells whether that is news: the same message again is none.
func put(tx *store.Tx, item *v1alpha1.WorkItem, agent string, out doors.Outgoing) (fresh bool, err error) {
	if out.Kind == doors.Progress {
		if _, err := items.Thread(tx, item); err != nil {
			return false, err
		}
		return tx.AddProgress("progress/"+agent+"/"+out.ID, agent, out.WorkItem, out.Text, func(old string) string { return progress.Merge(old, out.Text) })
	}
	said, err := tx.Said("say/" + agent + "/" + out.ID)
	if err != nil {
		return false, err
	}
	return !said, say(tx, item, agent, out)
}

// say puts the agent's words into the item's thread, in as many messages as they need.
func say(tx *store.Tx, item *v1alpha1.WorkItem, agent string, out doors.Outgoing) error {
	t, err := items.Thread(tx, item)
	if err != nil {
		return err
	}
	if err := progress.Flush(tx, item.Name); err != nil {
		return err
	}
	for n, part := range render.Markdown(out.Text) {
		id := "say/" + agent + "/" + out.ID
		if n > 0 {
			id += fmt.Sprintf("#%d", n)
		}
		if err := tx.Send(items.In(t, store.Outbound{ID: id, Sender: store.ByAgent(agent), Content: part.JSON(), Whole: out.Text})); err != nil {
			return err
		}
	}
	return nil
}

// spent turns away an agent that has had its day's worth. The log tells it once an hour.
func (d *Door) spent(ctx context.Context, w http.ResponseWriter, agent string, over *store.OverBudget) {
	metrics.OverBudget.Inc()
	if _, ok := d.Requests.Take("spent/"+agent, 1.0/3600, 1); ok {
		d.Log.WarnContext(ctx, "budget.spent", "agent", agent, "until", over.Until.Format(time.RFC3339),
			"advice", "look at what the agent says without end; suspend it if that is no work")
	}
	now := time.Now()
	w.Header().Set("Retry-After", fmt.Sprint(int(over.Until.Sub(now).Seconds())+1))
	podauth.Problem(w, http.StatusTooManyRequests, "BudgetSpent",
		fmt.Sprintf("%s has said %d MiB within a day, which is all that is stored for it; this is taken from %s on", agent, store.DayBytes>>20, clock.Tell(over.Until, now)))
}
