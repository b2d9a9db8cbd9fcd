// Package telemetry gives every binary the same log: one JSON line per durable change, written by the code that commits it, after
// the commit. Logs are never read back.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// New returns the logger of one binary. Each line bears ts, level, event (the message) and component.
func New(w io.Writer, component string, level slog.Level) *slog.Logger {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.TimeKey:
			return slog.String("ts", a.Value.Time().UTC().Format(time.RFC3339Nano))
		case slog.MessageKey:
			return slog.String("event", a.Value.String())
		}
		return a
	}})
	return slog.New(h).With("component", component)
}

// Event is the envelope of a durable change.
type Event struct {
	// Agent it concerns.
	Agent string
	// TaskID is the work item's correlation ID.
	TaskID string
	// Cause is what led to it: a name of an object, a call ID, an event ID.
	Cause string
}

// Changed writes one durable change. name is in the form thing.done, such as gate.approved.
func Changed(ctx context.Context, log *slog.Logger, name string, e Event, attrs ...slog.Attr) {
	all := append([]slog.Attr{slog.String("agent", e.Agent), slog.String("task_id", e.TaskID), slog.String("cause", e.Cause)}, attrs...)
	log.LogAttrs(ctx, slog.LevelInfo, name, all...)
}
