package audit

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
)

// Seal is a checkpoint that was made of the chain, and the note that says so.
type Seal struct {
	checkpoint.Checkpoint
	Note string
}

// Sealed is the newest seal; zero when there is none.
func Sealed(ctx context.Context, q store.Querier) (Seal, error) {
	var s Seal
	var root string
	err := q.QueryRowContext(ctx, "SELECT rows, root, note FROM checkpoints ORDER BY rows DESC LIMIT 1").Scan(&s.Rows, &root, &s.Note)
	if errors.Is(err, sql.ErrNoRows) {
		return Seal{}, nil
	}
	if err == nil {
		s.Root, err = checkpoint.ParseRoot(root)
	}
	if err == nil {
		s.Line, err = Line(ctx, q)
	}
	if err != nil {
		return Seal{}, fmt.Errorf("audit: newest checkpoint: %w", err)
	}
	return s, nil
}

// checkpoints that were made of the chain.
func checkpoints(ctx context.Context, q store.Querier) (all []chain.Expect, err error) {
	rows, err := q.QueryContext(ctx, "SELECT rows, root FROM checkpoints")
	if err != nil {
		return nil, fmt.Errorf("audit: checkpoints: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e chain.Expect
		var root string
		if err := rows.Scan(&e.Rows, &root); err != nil {
			return nil, fmt.Errorf("audit: checkpoints: %w", err)
		}
		if e.Root, err = checkpoint.ParseRoot(root); err != nil {
			return nil, &chain.Finding{Trouble: checkpoint.Edited, Row: e.Rows, Detail: "the checkpoint of it: " + err.Error()}
		}
		all = append(all, e)
	}
	return all, rows.Err()
}

// MakeSeal of all rows in a transaction, unless that is there already. It extends the last one or fails with a *chain.Finding: never are two
// roots signed for one length.
func MakeSeal(ctx context.Context, tx *sql.Tx, at time.Time, device string, key ed25519.PrivateKey) (Seal, error) {
	last, err := Sealed(ctx, tx)
	if err != nil {
		return Seal{}, err
	}
	end, err := End(ctx, tx)
	if err != nil || end.Rows == last.Rows {
		return last, err
	}
	if end.Rows < last.Rows {
		return Seal{}, &chain.Finding{Trouble: checkpoint.Truncated, Row: end.Rows + 1, Detail: fmt.Sprintf("%d rows were sealed, %d are left", last.Rows, end.Rows)}
	}
	if err := grow(ctx, tx, last.Checkpoint, end.Rows); err != nil {
		return Seal{}, err
	}
	s := Seal{Checkpoint: checkpoint.Checkpoint{Rows: end.Rows}}
	if s.Line, err = Line(ctx, tx); err != nil {
		return Seal{}, err
	}
	if s.Root, err = tlog.TreeHash(end.Rows, nodes{ctx, tx}); err != nil {
		return Seal{}, fmt.Errorf("audit: %w", err)
	}
	if s.Note, err = s.Sign(device, key); err != nil {
		return Seal{}, err
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO checkpoints VALUES (?, ?, ?, ?)", s.Rows, s.Root.String(), s.Note, at.Unix()); err != nil {
		return Seal{}, fmt.Errorf("audit: checkpoint of %d rows: %w", s.Rows, err)
	}
	return s, nil
}

// Prove that the sealed rows contain the first of them, as many as since says. Nothing is proven that does not hold: where the tree does not give
// the sealed root, it is made anew from the rows.
func Prove(ctx context.Context, tx *sql.Tx, s Seal, since int64) ([]string, error) {
	for _, again := range []bool{true, false} {
		p, err := prove(nodes{ctx, tx}, s.Checkpoint, since)
		if err == nil {
			return p, nil
		}
		if !again {
			return nil, err
		}
		if err := regrow(ctx, tx, s.Checkpoint); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func prove(n nodes, now checkpoint.Checkpoint, since int64) ([]string, error) {
	p, err := tlog.ProveTree(now.Rows, since, n)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	old, err := tlog.TreeHash(since, n)
	if err == nil {
		err = tlog.CheckTree(p, now.Rows, now.Root, since, old)
	}
	if err != nil {
		return nil, fmt.Errorf("audit: the tree does not hold: %w", err)
	}
	all := make([]string, len(p))
	for i, h := range p {
		all[i] = h.String()
	}
	return all, nil
}

// grow the tree from a checkpoint, which it must have, to more rows.
func grow(ctx context.Context, tx *sql.Tx, from checkpoint.Checkpoint, rows int64) error {
	root, err := tlog.TreeHash(from.Rows, nodes{ctx, tx})
	if from.Rows > 0 && (err != nil || root != from.Root) {
		if err := regrow(ctx, tx, from); err != nil {
			return err
		}
	}
	return plant(ctx, tx, from.Rows, rows)
}

// regrow the tree from the rows, where it is not what a checkpoint says. If the rows do not give that either, it is they that were altered.
func regrow(ctx context.Context, tx *sql.Tx, want checkpoint.Checkpoint) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM tree"); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := plant(ctx, tx, 0, want.Rows); err != nil {
		return err
	}
	root, err := tlog.TreeHash(want.Rows, nodes{ctx, tx})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if root != want.Root {
		return &chain.Finding{Trouble: checkpoint.Forked, Row: want.Rows, Detail: "the rows up to it are not those that its checkpoint was made of"}
	}
	return nil
}

// plant the leaves of rows above from up to rows, and the nodes that they complete.
func plant(ctx context.Context, tx *sql.Tx, from, rows int64) error {
	hashes, err := rowHashes(ctx, tx, from, rows)
	if err != nil {
		return err
	}
	if want := rows - from; int64(len(hashes)) != want {
		return &chain.Finding{Trouble: checkpoint.Gap, Row: from + 1, Detail: fmt.Sprintf("%d rows should come from there on, %d do", want, len(hashes))}
	}
	for i, h := range hashes {
		leaf, err := checkpoint.Leaf(h)
		if err != nil {
			return &chain.Finding{Trouble: checkpoint.Edited, Row: from + int64(i) + 1, Detail: err.Error()}
		}
		at := from + int64(i)
		all, err := tlog.StoredHashesForRecordHash(at, leaf, nodes{ctx, tx})
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		for level, hash := range all {
			if _, err := tx.ExecContext(ctx, "INSERT INTO tree VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET hash = excluded.hash", level, at>>level, hash[:]); err != nil {
				return fmt.Errorf("audit: tree: %w", err)
			}
		}
	}
	return nil
}

func rowHashes(ctx context.Context, tx *sql.Tx, after, upTo int64) (all []string, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT hash FROM audit WHERE seq > ? AND seq <= ? ORDER BY seq", after, upTo)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var h string
		if err := rows.Scan(&h); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		all = append(all, h)
	}
	return all, rows.Err()
}

// nodes of the tree that are stored.
type nodes struct {
	ctx context.Context
	q   store.Querier
}

// ReadHashes implements tlog.HashReader.
func (n nodes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	all := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, at := tlog.SplitStoredHashIndex(index)
		var b []byte
		if err := n.q.QueryRowContext(n.ctx, "SELECT hash FROM tree WHERE level = ? AND n = ?", level, at).Scan(&b); err != nil {
			return nil, fmt.Errorf("node %d of level %d: %w", at, level, err)
		}
		if len(b) != tlog.HashSize {
			return nil, fmt.Errorf("node %d of level %d has %d bytes", at, level, len(b))
		}
		all[i] = tlog.Hash(b)
	}
	return all, nil
}
