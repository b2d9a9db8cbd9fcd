// Package core is the runtime without what makes it wait: it takes in what the doors bring, writes it down, says what to do next, and
// writes down how that ended. It starts nothing, sleeps nowhere and reads no clock but the one it is given; package loop gives it
// goroutines, patience and a real clock. One goroutine owns it. It works on the active item alone; what others bring is kept until
// they are active.
package core

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/prompt"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
)

// Parts that the core is made of. All are required.
type Parts struct {
	Config doors.RuntimeConfig
	Log    *eventlog.Log
	Logger *slog.Logger
	Meter  *Meter
	Now    func() time.Time
	// Settle is how long the cluster may take to follow a person's words before the model is asked anyway.
	Settle time.Duration
	// Queued is told that words wait to be said in the room.
	Queued func()
}

// Core of one agent's runtime.
type Core struct {
	Parts
	state *reducer.State
	// begun calls whose outcome is open, by ID.
	begun map[string]bool
	// resume notices by item, found at boot and told when the item is worked on.
	resume map[string]Notice
	work   *doors.Snapshot
	// heard are the sources of what snapshots told, in this process.
	heard  map[string]bool
	flight *Flight
	canAsk bool
	budget int
	// settling since, for the event that woke the item.
	settling   time.Time
	settlingAt int64
	// heardAll: the last attempt to read the mailbox succeeded and found nothing, so no words have been waiting there for long, nor on
	// their way from there into the log.
	heardAll atomic.Bool
}

// Notice to the people of an item. The same key is the same notice.
type Notice struct{ Item, Key, Text string }

// New core over an open log.
func New(p Parts) *Core {
	return &Core{
		Parts: p, state: reducer.New(p.Log.ID()), begun: map[string]bool{}, resume: map[string]Notice{}, heard: map[string]bool{},
		canAsk: true, budget: prompt.DefaultBudget,
	}
}

// Notify people. It changes nothing about what is done next.
func (c *Core) Notify(ctx context.Context, n Notice) error {
	return c.commit(ctx, "notice", c.state.Item(n.Item).Noticed(n.Key, n.Text), eventlog.Write{})
}

func (c *Core) env() reducer.Env {
	return reducer.Env{Calls: c.Config.ToolCallsPerTurn, CanAsk: c.canAsk, Begun: c.begun}
}

// commit writes a batch and folds what was new.
func (c *Core) commit(ctx context.Context, cause string, b reducer.Batch, w eventlog.Write) error {
	w.Cause = cause
	w.Events = append(w.Events, b.Events...)
	w.Say = append(w.Say, b.Say...)
	w.Asides = append(w.Asides, b.Asides...)
	return c.write(ctx, w)
}

func (c *Core) write(ctx context.Context, w eventlog.Write) error {
	added, err := c.Log.Commit(ctx, w)
	if err != nil {
		return err
	}
	for _, e := range added {
		c.Meter.event(e.Type)
		if err := c.state.Apply(e); err != nil {
			return err
		}
	}
	if len(w.Say) > 0 {
		c.Queued()
	}
	return nil
}

// begin writes an intent down before its effect.
func (c *Core) begin(ctx context.Context, i eventlog.Intent, cause string) error {
	crashpoint.Hit("runtime.intent.before")
	if err := c.write(ctx, eventlog.Write{Begin: &i, Cause: cause}); err != nil {
		return err
	}
	crashpoint.Hit("runtime.intent.after")
	return nil
}
