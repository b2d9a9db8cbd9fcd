package store

import (
	"context"
	"fmt"
	"time"
)

// Progress of an item, as it should stand in its one progress message.
type Progress struct {
	WorkItem string
	Agent    string
	Text     string
	// Version of the text; Shown is the one that was handed to the outbox last, at ShownAt. 0: none yet.
	Version int64
	Shown   int64
	ShownAt time.Time
	// Message is the outbound that edits replace; empty when the text is to be a message of its own.
	Message string
}

// keepIDs of lines of progress: a line that comes again is the same line only among so many of its agent's newest. A runtime repeats
// none but the last.
const keepIDs = 1000

// AddProgress lets merge put news into the item's text. The same ID again changes nothing; with other news it is a conflict.
func (t *Tx) AddProgress(id, agent, workItem, news string, merge func(old string) string) (added bool, err error) {
	d := digest(agent, workItem, news)
	added, err = t.affected("INSERT INTO progress_ids(id, digest, agent, at) VALUES(?, ?, ?, ?) ON CONFLICT DO NOTHING", id, d, agent, time.Now().UnixMilli())
	if err != nil {
		return false, fmt.Errorf("store progress %s: %w", id, err)
	}
	if !added {
		var have string
		if err := t.QueryRowContext(t.ctx, "SELECT digest FROM progress_ids WHERE id = ?", id).Scan(&have); err != nil {
			return false, fmt.Errorf("read progress %s: %w", id, err)
		}
		if have != d {
			return false, fmt.Errorf("%s: %w", id, ErrConflict)
		}
		return false, nil
	}
	if err := t.exec("DELETE FROM progress_ids WHERE agent = ?1 AND rowid <= (SELECT rowid FROM progress_ids WHERE agent = ?1 ORDER BY rowid DESC LIMIT 1 OFFSET ?2)",
		agent, keepIDs); err != nil {
		return false, fmt.Errorf("forget old progress of %s: %w", agent, err)
	}
	var old string
	if _, err := found(t.QueryRowContext(t.ctx, "SELECT text FROM progress WHERE work_item = ?", workItem).Scan(&old)); err != nil {
		return false, fmt.Errorf("read the progress of %s: %w", workItem, err)
	}
	t.changed = append(t.changed, TopicProgress)
	return true, t.exec(`INSERT INTO progress(work_item, agent, text, version, shown, shown_at) VALUES(?1, ?2, ?3, 1, 0, 0)
		ON CONFLICT DO UPDATE SET text = ?3, version = version + 1`, workItem, agent, merge(old))
}

// StaleProgress is an item's progress, if its message does not say what it should.
func (t *Tx) StaleProgress(workItem string) (p Progress, ok bool, err error) {
	var at int64
	ok, err = found(t.QueryRowContext(t.ctx, "SELECT work_item, agent, text, version, shown, shown_at, message FROM progress WHERE work_item = ? AND shown < version", workItem).
		Scan(&p.WorkItem, &p.Agent, &p.Text, &p.Version, &p.Shown, &at, &p.Message))
	if err != nil {
		return p, false, fmt.Errorf("read the progress of %s: %w", workItem, err)
	}
	p.ShownAt = time.UnixMilli(at)
	return p, ok, nil
}

// Stale lists the items whose progress message does not say what it should.
func (s *Store) Stale(ctx context.Context) ([]Progress, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT work_item, agent, text, version, shown, shown_at, message FROM progress WHERE shown < version ORDER BY shown_at, work_item")
	if err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	defer rows.Close()
	var out []Progress
	for rows.Next() {
		var p Progress
		var at int64
		if err := rows.Scan(&p.WorkItem, &p.Agent, &p.Text, &p.Version, &p.Shown, &at, &p.Message); err != nil {
			return nil, fmt.Errorf("read progress: %w", err)
		}
		p.ShownAt = time.UnixMilli(at)
		out = append(out, p)
	}
	return out, rows.Err()
}

// ProgressShown notes that a version was handed to the outbox, and which message edits replace from now on.
func (t *Tx) ProgressShown(workItem string, version int64, message string, at time.Time) error {
	return t.exec("UPDATE progress SET shown = ?, shown_at = ?, message = ? WHERE work_item = ?", version, at.UnixMilli(), message, workItem)
}
