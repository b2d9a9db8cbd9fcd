// Package matrix runs the gateway's accounts at a homeserver: one for each agent and one for approvals. Reading loses nothing and
// takes nothing twice: what was said, what becomes of it and how far was read are stored in one transaction, and what a sync leaves
// out is fetched. Writing says nothing twice: one message at a time, each with an ID of ours inside it, by which it is looked for
// before it is sent again.
package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/gateway/store"
)

// State of an account, for people.
type State struct {
	Connected bool
	// Reason in one word, as in the Agent's status.
	Reason  string
	Message string
	RoomID  string
}

// Reasons of a State. They are those of the API.
const (
	Connected             = v1alpha1.ReasonConnected
	RoomNotFound          = v1alpha1.ReasonRoomNotFound
	LoginFailed           = v1alpha1.ReasonLoginFailed
	HomeserverUnreachable = v1alpha1.ReasonHomeserverUnreachable
	RoomEncrypted         = v1alpha1.ReasonRoomEncrypted
	RoomReadOnly          = v1alpha1.ReasonRoomReadOnly
)

// Message of somebody in the agent's room.
type Message struct {
	Event routing.Event
	// Raw event as the homeserver sent it.
	Raw json.RawMessage
}

// Desk takes in what people say in the agent's room. It writes into the transaction that also moves the sync token, so it is asked
// again about the same message only if nothing of it was kept.
type Desk interface {
	Take(ctx context.Context, tx *store.Tx, m Message) error
}

// Options of an account.
type Options struct {
	Homeserver string
	UserID     id.UserID
	// Sender under which the account's messages stand in the outbox.
	Sender string
	// Agent whose account it is, and Wanted, the room (alias or ID) it belongs in. The approvals account has neither: it belongs
	// in every agent's room.
	Agent  string
	Wanted string
	// Approvals is the account that shows gates, which an agent's account invites.
	Approvals id.UserID

	Store       *store.Store
	Credentials Credentials
	// Desk is nil for the approvals account.
	Desk Desk
	// Report hears of every change of the account's state.
	Report func(State)
	// Hidden hears of an agent when a message that must be read was refused, or such a one got through.
	Hidden func(agent string)
	// Task finds the ID by which logs tell a work item's story; without it the item's name is that.
	Task func(ctx context.Context, workItem string) string
	Log  *slog.Logger
	// Timing may be left empty.
	Timing Timing
}

// Timing of what an account does when things fail, and how much it takes at once.
type Timing struct {
	// Backoff after the first failure and at most; 1 s and 1 min.
	Backoff, MaxBackoff time.Duration
	// Unreachable for how long before people are told; 10 s.
	Unreachable time.Duration
	// Poll is how long one sync waits for news; 30 s.
	Poll time.Duration
	// Retry of a login or a room that failed for a reason only people can mend; 15 s.
	Retry time.Duration
	// Timeline is how many events of a room one sync brings; 50.
	Timeline int
	// Answer is how many bytes of one answer are read; 16 MB. Where there are more, fewer events are asked for at once.
	Answer int64
	// Gap is how many bytes of messages one gap may hold; 32 MB.
	Gap int
}

func (t Timing) withDefaults() Timing {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&t.Backoff, time.Second)
	set(&t.MaxBackoff, time.Minute)
	set(&t.Unreachable, 10*time.Second)
	set(&t.Poll, 30*time.Second)
	set(&t.Retry, 15*time.Second)
	if t.Timeline == 0 {
		t.Timeline = 50
	}
	if t.Answer == 0 {
		t.Answer = 16 << 20
	}
	if t.Gap == 0 {
		t.Gap = 32 << 20
	}
	return t
}

// Account of ours.
type Account struct {
	Options
	home homeserver
	log  *slog.Logger
	wake chan struct{} // rooms changed: the sender may go on

	mu    sync.Mutex
	state State
	ready map[id.RoomID]bool // rooms it may write into: joined and not encrypted
	room  id.RoomID          // the agent's, once resolved
}

// New account, not yet running.
func New(o Options) (*Account, error) {
	client, err := mautrix.NewClient(o.Homeserver, "", "")
	if err != nil {
		return nil, fmt.Errorf("homeserver URL %q: %w", o.Homeserver, err)
	}
	client.DefaultHTTPRetries = 0 // retried here, where it is known what may be repeated
	client.UserAgent = "nisse-gateway"
	o.Timing = o.Timing.withDefaults()
	client.Client, client.ResponseSizeLimit = httpClient(), o.Timing.Answer
	return &Account{
		Options: o, home: homeserver{client}, log: o.Log.With("account", o.UserID.String()),
		wake: make(chan struct{}, 1), ready: map[id.RoomID]bool{},
	}, nil
}

// Run the account until the context ends. Whatever fails is reported and tried again.
func (a *Account) Run(ctx context.Context) {
	fail := backoff{first: a.Timing.Backoff, most: a.Timing.MaxBackoff}
	for ctx.Err() == nil {
		err := a.login(ctx)
		in := err == nil
		if in {
			err = a.session(ctx, &fail)
		}
		if ctx.Err() != nil {
			return
		}
		a.log.WarnContext(ctx, "account.away", "error", err.Error())
		switch {
		case in && !away(err), errors.Is(err, mautrix.MUnknownToken):
			// The session was ended from outside, or something of our own is broken. Try anew, but not in a tight loop.
			sleep(ctx, fail.next())
		case away(err):
			a.unreachable(&fail, err)
			sleep(ctx, fail.next())
		default:
			a.report(State{Reason: LoginFailed, Message: explain(err)})
			sleep(ctx, a.Timing.Retry)
		}
	}
}

// session reads and writes with the session that login made. It returns when the session is no good any more.
func (a *Account) session(ctx context.Context, fail *backoff) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	started := make(chan struct{})
	wg.Go(func() {
		select {
		case <-started:
			if err := a.send(ctx); err != nil {
				cancel(err)
			}
		case <-ctx.Done():
		}
	})
	err := a.sync(ctx, fail, started)
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		err = cause
	}
	cancel(nil)
	return err
}

func (a *Account) unreachable(fail *backoff, err error) {
	if fail.since().Before(time.Now().Add(-a.Timing.Unreachable)) {
		a.report(State{Reason: HomeserverUnreachable, Message: explain(err), RoomID: a.State().RoomID})
	}
}

// State of the account now.
func (a *Account) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

func (a *Account) report(s State) {
	a.mu.Lock()
	same := a.state == s
	a.state = s
	a.mu.Unlock()
	if !same && a.Report != nil {
		a.Report(s)
	}
}

func (a *Account) setReady(room id.RoomID, ready bool) {
	a.mu.Lock()
	a.ready[room] = ready
	a.mu.Unlock()
	if ready {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

func (a *Account) isReady(room id.RoomID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready[room]
}
