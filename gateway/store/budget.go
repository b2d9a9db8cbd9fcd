package store

import (
	"fmt"
	"time"
)

// DayBytes is how much one agent's pod may have stored within a day: whole hours, this one and the 23 before it.
const DayBytes = 64 << 20

const hours = 24

// OverBudget is the error of who has spent what a day holds.
type OverBudget struct {
	// Until then; the same may be stored from then on.
	Until time.Time
}

func (e *OverBudget) Error() string {
	return fmt.Sprintf("%d MiB were stored within a day; more may be from %s on", DayBytes>>20, e.Until.UTC().Format(time.RFC3339))
}

// Spend notes what an agent's pod has stored just now, or returns an OverBudget.
func (t *Tx) Spend(agent string, bytes int64, now time.Time) error {
	hour := now.Unix() / 3600
	// Hours that are still to come were counted by a clock that went ahead.
	if err := t.exec("DELETE FROM spent WHERE agent = ? AND (hour <= ? OR hour > ?)", agent, hour-hours, hour); err != nil {
		return fmt.Errorf("forget what %s spent long ago: %w", agent, err)
	}
	rows, err := t.QueryContext(t.ctx, "SELECT hour, bytes FROM spent WHERE agent = ? ORDER BY hour DESC", agent)
	if err != nil {
		return fmt.Errorf("read what %s has spent: %w", agent, err)
	}
	defer rows.Close()
	sum := bytes
	for rows.Next() { // newest first: what is over with the hour whose bytes are too many
		var h, b int64
		if err := rows.Scan(&h, &b); err != nil {
			return fmt.Errorf("read what %s has spent: %w", agent, err)
		}
		if sum += b; sum > DayBytes {
			return &OverBudget{Until: time.Unix((h+hours)*3600, 0).UTC()}
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read what %s has spent: %w", agent, err)
	}
	if err := t.exec("INSERT INTO spent(agent, hour, bytes) VALUES(?, ?, ?) ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes", agent, hour, bytes); err != nil {
		return fmt.Errorf("note what %s spends: %w", agent, err)
	}
	return nil
}
