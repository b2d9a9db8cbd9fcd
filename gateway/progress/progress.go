// Package progress keeps, for each item, one message in the room about what its agent does, and edits it now and then.
package progress

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/sanitize"
)

const (
	// Every is how often one progress message is edited at most.
	Every = 15 * time.Second
	// maxLines of a progress message, the newest; maxLine in runes.
	maxLines = 30
	maxLine  = 300
	earlier  = "• … earlier steps are not shown"
)

// Merge a line into the text of a progress message. The oldest lines make room when there are too many, or when an edit that holds them
// all would be an event that no homeserver takes: 12 KB of text in any script, less where HTML or JSON must escape most of it.
func Merge(old, news string) string {
	var lines []string
	if old != "" {
		lines = strings.Split(old, "\n")
	}
	lines = append(lines, "• "+sanitize.Line(news, maxLine))
	text := strings.Join(lines, "\n")
	for len(lines) > 1 && (strings.Count(text, "\n") >= maxLines || !render.Progress(text).Editable()) {
		lines = lines[1:]
		text = earlier + "\n" + strings.Join(lines, "\n")
	}
	return text
}

// Keeper shows what there is to show.
type Keeper struct {
	Store *store.Store
	Log   *slog.Logger
	// Every is how often a message is edited at most.
	Every time.Duration
}

// Run until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		changed := k.Store.Changed(store.TopicProgress)
		due, err := k.show(ctx)
		if err != nil {
			k.Log.WarnContext(ctx, "progress.waits", "error", err.Error())
			due = time.Second
		}
		var timer <-chan time.Time
		if due > 0 {
			timer = time.After(due)
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return nil
		}
	}
}

// show what may be shown now, and tell when more may be; 0 when there is nothing more.
func (k *Keeper) show(ctx context.Context) (time.Duration, error) {
	stale, err := k.Store.Stale(ctx)
	if err != nil {
		return 0, err
	}
	next := time.Duration(0)
	for _, s := range stale {
		if left := time.Until(s.ShownAt.Add(k.Every)); s.Shown > 0 && left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		if err := k.Store.Update(ctx, func(tx *store.Tx) error { return Flush(tx, s.WorkItem) }); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// Flush shows an item's news at once: something is about to be said that follows from them, and they belong above it. What comes
// after is counted from now.
func Flush(tx *store.Tx, workItem string) error {
	s, ok, err := tx.StaleProgress(workItem)
	if err != nil || !ok {
		return err
	}
	return post(tx, s)
}

func post(tx *store.Tx, s store.Progress) error {
	t, ok, err := tx.Thread(s.WorkItem)
	if err != nil {
		return err
	}
	message := s.Message
	if ok { // the door saw to it before it took the first line
		o := store.Outbound{ID: "progress/" + s.WorkItem, Sender: store.ByAgent(s.Agent), Content: render.Progress(s.Text).JSON(), Replaces: message}
		if s.Shown > 0 {
			o.ID += fmt.Sprintf("/%d", s.Version)
		}
		if message == "" {
			message = o.ID
		}
		if err := tx.Send(items.In(t, o)); err != nil {
			return err
		}
	}
	return tx.ProgressShown(s.WorkItem, s.Version, message, time.Now())
}
