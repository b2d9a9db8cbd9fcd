package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/canonical"
)

// ErrBroken is wrapped when the log is not what was written.
var ErrBroken = errors.New("event log is damaged")

// link is what an event's hash covers: everything about it and the hash before it.
type link struct {
	Seq      int64  `json:"seq"`
	ID       string `json:"id"`
	WorkItem string `json:"workItem"`
	Type     string `json:"type"`
	Payload  string `json:"payload"`
	Source   string `json:"source"`
	At       string `json:"at"`
	PrevHash string `json:"prevHash"`
}

func hash(e event.Event) (string, error) {
	return canonical.Digest(link{
		Seq: e.Seq, ID: e.ID, WorkItem: e.WorkItem, Type: string(e.Type), Payload: string(e.Payload),
		Source: e.Source, At: stamp(e.At), PrevHash: e.PrevHash,
	})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// eventID is a ULID of the time and of the source, so that it sorts by time and the same source never has two.
func eventID(at time.Time, source string) string {
	var u ulid.ULID
	_ = u.SetTime(uint64(max(at.UnixMilli(), 0)))                                          // cannot fail before the year 10889
	_ = u.SetEntropy([]byte(canonical.Hex([]byte("nisse.io/event/v1\x00" + source)))[:10]) // cannot fail: ten bytes
	return "ev-" + strings.ToLower(u.String())
}

// verify walks the whole chain, so that nothing is built on a log that was edited, lost events in its middle, or lost its end.
func verify(ctx context.Context, db *sql.DB, headSeq int64, headHash string) error {
	rows, err := db.QueryContext(ctx, selectEvents+" ORDER BY seq")
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var last int64
	var prev string
	for rows.Next() {
		e, err := scan(rows)
		if err != nil {
			return err
		}
		if e.Seq != last+1 {
			return fmt.Errorf("%w: events %d to %d are missing; restore the volume from its snapshot", ErrBroken, last+1, e.Seq-1)
		}
		if e.PrevHash != prev {
			return fmt.Errorf("%w: event %d does not follow event %d; restore the volume from its snapshot", ErrBroken, e.Seq, last)
		}
		h, err := hash(e)
		if err != nil {
			return fmt.Errorf("%w: event %d: %w", ErrBroken, e.Seq, err)
		}
		if h != e.Hash {
			return fmt.Errorf("%w: event %d was changed after it was written; restore the volume from its snapshot", ErrBroken, e.Seq)
		}
		last, prev = e.Seq, e.Hash
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if last != headSeq || prev != headHash {
		return fmt.Errorf("%w: it should end with event %d and ends with %d; restore the volume from its snapshot", ErrBroken, headSeq, last)
	}
	return nil
}
