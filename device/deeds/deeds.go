// Package deeds is the device's memory of what it was asked to do, so that nothing is done twice. A deed is written down before it is
// begun and answered from the table ever after.
package deeds

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
)

// ErrFull is wrapped when there is no room for another deed and none old enough to forget. Nothing runs that could not be remembered.
var ErrFull = errors.New("the deed table is full")

// Retention of deeds after their requests expired.
const (
	// Approved deeds outlive everything in the cluster that could ask for them again.
	Approved = 90 * 24 * time.Hour
	// Free deeds may go after this, for their requests are refused as expired.
	Free = 24 * time.Hour
	// FreePressed is enough when the table is full: more than a window, so that a clock set back a little changes nothing.
	FreePressed = 2 * wire.MaxWindowSeconds * time.Second
)

// Bounds of the table. Free and approved deeds have their own, so that an agent that may call without asking cannot crowd out what was
// approved.
type Bounds struct {
	Approved, Free int64
	// ApprovedBytes and FreeBytes of stored answers.
	ApprovedBytes, FreeBytes int64
}

// DefaultBounds of a device.
var DefaultBounds = Bounds{Approved: 100_000, Free: 200_000, ApprovedBytes: 4 << 30, FreeBytes: 1 << 30}

// Deed in the table.
type Deed struct {
	ID       string
	CallHash string
	// Approved tells whether it ran, or was to run, under an approval.
	Approved bool
	// State: Running until its outcome is written.
	State wire.State
	// Answer as it was first given, to the byte; empty while Running.
	Answer []byte
	// ExpiresAt of its request in Unix seconds.
	ExpiresAt int64
	// IntentRow of the audit.
	IntentRow int64
}

const columns = "id, call_hash, approved, state, answer, expires_at, intent_row"

func (d *Deed) scan(row interface{ Scan(...any) error }) error {
	return row.Scan(&d.ID, &d.CallHash, &d.Approved, &d.State, &d.Answer, &d.ExpiresAt, &d.IntentRow)
}

// Get a deed; found is false when it was never seen.
func Get(ctx context.Context, q store.Querier, id string) (d Deed, found bool, err error) {
	err = d.scan(q.QueryRowContext(ctx, "SELECT "+columns+" FROM deeds WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return Deed{}, false, nil
	}
	if err != nil {
		return Deed{}, false, fmt.Errorf("deed %s: %w", id, err)
	}
	return d, true, nil
}

// Open deeds: those whose outcome was not written.
func Open(ctx context.Context, q store.Querier) ([]Deed, error) {
	rows, err := q.QueryContext(ctx, "SELECT "+columns+" FROM deeds WHERE state = 'Running' ORDER BY intent_row")
	if err != nil {
		return nil, fmt.Errorf("open deeds: %w", err)
	}
	defer rows.Close()
	var all []Deed
	for rows.Next() {
		var d Deed
		if err := d.scan(rows); err != nil {
			return nil, fmt.Errorf("open deeds: %w", err)
		}
		all = append(all, d)
	}
	return all, rows.Err()
}

// Table adds to the deeds of a store within bounds.
type Table struct{ Bounds Bounds }

// Add a deed that was never seen before: the ID is unique, so two requests cannot both add it. now is zero when the clock is not
// believed, and then nothing is forgotten.
func (t Table) Add(ctx context.Context, tx *sql.Tx, now int64, d Deed) error {
	if err := t.room(ctx, tx, now, d.Approved); err != nil {
		return err
	}
	if d.Answer == nil {
		d.Answer = []byte{}
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO deeds ("+columns+") VALUES (?, ?, ?, ?, ?, ?, ?)", d.ID, d.CallHash, d.Approved, d.State, d.Answer, d.ExpiresAt, d.IntentRow)
	if err != nil {
		return fmt.Errorf("deed %s: %w", d.ID, err)
	}
	return nil
}

// Finish a deed that is Running.
func Finish(ctx context.Context, tx *sql.Tx, id string, state wire.State, answer []byte) error {
	r, err := tx.ExecContext(ctx, "UPDATE deeds SET state = ?, answer = ? WHERE id = ? AND state = 'Running'", state, answer, id)
	if err != nil {
		return fmt.Errorf("deed %s: %w", id, err)
	}
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("deed %s is not running: %d rows changed, %w", id, n, err)
	}
	return nil
}

func (t Table) room(ctx context.Context, tx *sql.Tx, now int64, approved bool) error {
	full, err := t.full(ctx, tx, approved)
	if err != nil || !full {
		return err
	}
	if now > 0 {
		keeps := []time.Duration{Approved}
		if !approved {
			keeps = []time.Duration{Free, FreePressed}
		}
		for _, keep := range keeps {
			_, err := tx.ExecContext(ctx, "DELETE FROM deeds WHERE approved = ? AND expires_at < ? AND state <> 'Running'", approved, now-int64(keep/time.Second))
			if err != nil {
				return fmt.Errorf("forget old deeds: %w", err)
			}
			if full, err = t.full(ctx, tx, approved); err != nil || !full {
				return err
			}
		}
	}
	return ErrFull
}

func (t Table) full(ctx context.Context, tx *sql.Tx, approved bool) (bool, error) {
	most, mostBytes := t.Bounds.Free, t.Bounds.FreeBytes
	if approved {
		most, mostBytes = t.Bounds.Approved, t.Bounds.ApprovedBytes
	}
	var n, bytes int64
	if err := tx.QueryRowContext(ctx, "SELECT deeds, bytes FROM totals WHERE approved = ?", approved).Scan(&n, &bytes); err != nil {
		return false, fmt.Errorf("deed table: %w", err)
	}
	return n >= most || bytes >= mostBytes, nil
}
