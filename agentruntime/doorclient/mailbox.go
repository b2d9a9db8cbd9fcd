package doorclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"nisse.io/nisse/internal/doors"
)

const (
	// waitSeconds that the gateway holds a request for messages.
	waitSeconds = 25
	// shortRequest bounds all the others.
	shortRequest = 30 * time.Second
)

// Mailbox at the gateway.
type Mailbox struct{ plain }

// NewMailbox for the gateway's door.
func NewMailbox(d Door) *Mailbox { return &Mailbox{plain{door: d, http: d.client()}} }

// Read waits for messages after seq; when not patient, it takes what is there now. When the gateway's epoch is another, the answer has that epoch and no messages, and moved is
// true: seq meant something else, and reading begins again at 0.
func (m *Mailbox) Read(ctx context.Context, epoch string, seq int64, patient bool) (in doors.Inbox, moved bool, err error) {
	wait := 0
	if patient {
		wait = waitSeconds
	}
	ctx, cancel := context.WithTimeout(ctx, (waitSeconds+20)*time.Second)
	defer cancel()
	q := url.Values{"epoch": {epoch}, "after": {strconv.FormatInt(seq, 10)}, "wait": {strconv.Itoa(wait)}}
	res, err := m.do(ctx, http.MethodGet, "/v1/inbox?"+q.Encode(), nil)
	if err != nil {
		return in, false, fmt.Errorf("read inbox: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusConflict {
		return in, false, fmt.Errorf("read inbox: %w", problem(res))
	}
	if err := json.NewDecoder(res.Body).Decode(&in); err != nil {
		return in, false, fmt.Errorf("read inbox: %w", err)
	}
	return in, res.StatusCode == http.StatusConflict, nil
}

// Ack says that everything up to seq is in the log. An epoch that has gone is no error: nothing is left to acknowledge in it.
func (m *Mailbox) Ack(ctx context.Context, epoch string, seq int64) error {
	res, err := m.post(ctx, "/v1/inbox/ack", doors.Ack{Epoch: epoch, Seq: seq})
	if err != nil {
		return fmt.Errorf("acknowledge inbox: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusConflict {
		return fmt.Errorf("acknowledge inbox: %w", problem(res))
	}
	return nil
}

// Send one message. It has arrived when there is no error; sending it again is the same message. An error that wraps ErrRefused
// will stay.
func (m *Mailbox) Send(ctx context.Context, o doors.Outgoing) error {
	res, err := m.post(ctx, "/v1/outbox", o)
	if err != nil {
		return fmt.Errorf("send to the room: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("send to the room: %w", problem(res))
	}
	return nil
}
