// Package mailbox is the gateway's door for agents' pods: what was said to them, and what they say. A pod reads and writes its own
// agent's only, whatever it asks for.
package mailbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
	"nisse.io/nisse/internal/rates"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

const (
	maxText   = 32 << 10
	maxBody   = 128 << 10 // JSON may escape every byte of the text
	maxID     = 128
	maxWait   = 30 * time.Second
	maxUnsent = 500 // of one agent; a runaway waits for the homeserver
	pageSize  = 100
	maxPage   = 1 << 20 // bytes of a page as it is sent; a reader takes far more, and one letter always
	// A pod that keeps its door busy must leave room for the others, and for what is written down of what it says.
	requestsPerSecond = 10
	requestsAtOnce    = 100
)

// Door serves /v1/inbox, /v1/inbox/ack and /v1/outbox. It must be wrapped by something that puts the pod's identity into the
// context, such as podauth.Authenticator.Require.
type Door struct {
	// Objects as the cache knows them, Live as the API server does.
	Objects   client.Reader
	Live      client.Reader
	Store     *store.Store
	Namespace string
	Log       *slog.Logger
	// Requests of each agent.
	Requests *rates.Buckets
	// Watch ends a context once the caller's token is no good any more. Nil: never.
	Watch func(context.Context) (context.Context, context.CancelFunc)
}

// Handler of the door.
func (d *Door) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/inbox", d.admit(d.inbox))
	mux.HandleFunc("POST /v1/inbox/ack", d.admit(d.ack))
	mux.HandleFunc("POST /v1/outbox", d.admit(d.outbox))
	return mux
}

// admit tells a handler who asks, and turns away who asks too much.
func (d *Door) admit(next func(http.ResponseWriter, *http.Request, podauth.Identity)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rate := podauth.Rate{Buckets: d.Requests, PerSecond: requestsPerSecond, AtOnce: requestsAtOnce, Message: "too many requests; slow down"}
		if id, ok := rate.Admit(w, r); ok {
			next(w, r, id)
		}
	}
}

func (d *Door) inbox(w http.ResponseWriter, r *http.Request, id podauth.Identity) {
	q := r.URL.Query()
	after, err := number(q.Get("after"))
	if err != nil {
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", "after must be a number from 0")
		return
	}
	seconds, err := number(q.Get("wait"))
	if err != nil {
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", "wait must be a number of seconds")
		return
	}
	if q.Get("epoch") != d.Store.Epoch() {
		answer(w, http.StatusConflict, doors.Inbox{Epoch: d.Store.Epoch(), Messages: []doors.Message{}})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(min(seconds, 60))*time.Second, maxWait))
	defer cancel()
	if d.Watch != nil {
		var end context.CancelFunc
		ctx, end = d.Watch(ctx)
		defer end()
	}
	for {
		changed := d.Store.Changed(store.TopicMailbox(id.Agent))
		messages, err := d.Store.Letters(r.Context(), id.Agent, after, pageSize)
		if err != nil {
			d.broken(r.Context(), w, err)
			return
		}
		if len(messages) > 0 || ctx.Err() != nil {
			if err := context.Cause(ctx); errors.Is(err, podauth.ErrRefused) {
				podauth.WriteProblem(w, err)
				return
			}
			answer(w, http.StatusOK, doors.Inbox{Epoch: d.Store.Epoch(), Messages: page(messages)})
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (d *Door) ack(w http.ResponseWriter, r *http.Request, id podauth.Identity) {
	var ack doors.Ack
	if !decode(w, r, &ack) {
		return
	}
	if ack.Epoch != d.Store.Epoch() {
		answer(w, http.StatusConflict, doors.Inbox{Epoch: d.Store.Epoch(), Messages: []doors.Message{}})
		return
	}
	if ack.Seq < 0 {
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", "seq must be a number from 0")
		return
	}
	if err := d.Store.Ack(r.Context(), id.Agent, ack.Seq); err != nil {
		d.broken(r.Context(), w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *Door) outbox(w http.ResponseWriter, r *http.Request, id podauth.Identity) {
	var out doors.Outgoing
	if !decode(w, r, &out) {
		return
	}
	switch {
	case out.ID == "" || len(out.ID) > maxID:
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", fmt.Sprintf("id must have 1 to %d bytes", maxID))
		return
	case strings.TrimSpace(out.Text) == "":
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", "text is empty")
		return
	case len(out.Text) > maxText:
		podauth.Problem(w, http.StatusRequestEntityTooLarge, "TooLarge", fmt.Sprintf("text has %d bytes, %d at most", len(out.Text), maxText))
		return
	case out.Kind != doors.Say && out.Kind != doors.Progress:
		podauth.Problem(w, http.StatusBadRequest, "BadRequest", fmt.Sprintf("kind must be %q or %q", doors.Say, doors.Progress))
		return
	}
	item, err := d.item(r.Context(), out.WorkItem)
	switch {
	case apierrors.IsNotFound(err) || (err == nil && item.Spec.Agent != id.Agent):
		// The same answer for both: others' items are none of its business.
		podauth.Problem(w, http.StatusNotFound, "UnknownWorkItem", fmt.Sprintf("agent %s has no work item %q", id.Agent, sanitize.Line(out.WorkItem, 64)))
		return
	case err != nil:
		d.Log.WarnContext(r.Context(), "outbox.unavailable", "error", err.Error())
		podauth.Problem(w, http.StatusServiceUnavailable, "Unavailable", "the API server cannot be asked about this item now; try again")
		return
	}
	unsent, err := d.Store.Unanswered(r.Context(), store.ByAgent(id.Agent))
	if err != nil {
		d.broken(r.Context(), w, err)
		return
	}
	if unsent >= maxUnsent {
		w.Header().Set("Retry-After", "5")
		podauth.Problem(w, http.StatusTooManyRequests, "TooMany", fmt.Sprintf("%d messages wait to be sent; try again later", unsent))
		return
	}
	err = d.Store.Update(r.Context(), func(tx *store.Tx) error {
		fresh, err := put(tx, item, id.Agent, out)
		if err != nil || !fresh {
			return err
		}
		return tx.Spend(id.Agent, cost(out), time.Now())
	})
	var over *store.OverBudget
	switch {
	case errors.As(err, &over):
		d.spent(r.Context(), w, id.Agent, over)
	case errors.Is(err, store.ErrConflict):
		podauth.Problem(w, http.StatusConflict, "Conflict", fmt.Sprintf("id %q was used for another message", sanitize.Line(out.ID, maxID)))
	case err != nil:
		d.broken(r.Context(), w, err)
	default:
		telemetry.Changed(r.Context(), d.Log, "message.accepted", telemetry.Event{Agent: id.Agent, TaskID: item.Correlation(), Cause: out.ID},
			slog.String("kind", out.Kind))
		w.WriteHeader(http.StatusAccepted)
	}
}

// item by name. One that the cache does not have yet may exist all the same.
func (d *Door) item(ctx context.Context, name string) (*v1alpha1.WorkItem, error) {
	var w v1alpha1.WorkItem
	key := client.ObjectKey{Namespace: d.Namespace, Name: name}
	if len(content.IsPathSegmentName(name)) > 0 || len(name) > 253 || name == "" {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workitems").GroupResource(), name)
	}
	err := d.Objects.Get(ctx, key, &w)
	if apierrors.IsNotFound(err) {
		err = d.Live.Get(ctx, key, &w)
	}
	return &w, err
}

func (d *Door) broken(ctx context.Context, w http.ResponseWriter, err error) {
	d.Log.ErrorContext(ctx, "door.failed", "error", err.Error())
	if errors.Is(err, store.ErrFull) {
		podauth.Problem(w, http.StatusServiceUnavailable, "StoreFull", "the gateway's volume is full; nothing of this was kept, try again later")
		return
	}
	podauth.Problem(w, http.StatusInternalServerError, "Internal", "the gateway's store failed; try again")
}

func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody*2))
	if err := dec.Decode(into); err != nil {
		status := http.StatusBadRequest
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		podauth.Problem(w, status, "BadRequest", "the body is not the JSON that is wanted here")
		return false
	}
	return true
}

func number(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// page keeps as many letters as fit into one answer, the first in any case. The reader asks for what follows the last one it has.
func page(letters []doors.Message) []doors.Message {
	size := 0
	for i := range letters {
		b, err := encode(letters[i])
		if size += len(b); err == nil && i > 0 && size > maxPage {
			return letters[:i]
		}
	}
	return letters
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	b, err := encode(body)
	if err != nil {
		return // only what cannot be made JSON fails, and all of this can
	}
	_, _ = w.Write(b) // the caller is gone; nothing to add
}

// encode as JSON without the escapes that HTML wants: they make six bytes of one.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
