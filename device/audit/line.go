package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
)

// metaLine is the line of the audit that is written: 0 until it was anchored anew.
const metaLine = "audit.line"

// Line that is written.
func Line(ctx context.Context, q store.Querier) (int64, error) {
	return store.MetaInt(ctx, q, metaLine)
}

// Begin a new line in a transaction, by an order. Every row and checkpoint of the line before it is put aside as it stands, whatever is wrong with it.
func Begin(ctx context.Context, tx *sql.Tx, at time.Time, a checkpoint.Anchor, order string) error {
	before, err := Line(ctx, tx)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for _, q := range []string{
		"INSERT INTO old_audit SELECT ?, seq, body, hash FROM audit", "INSERT INTO old_checkpoints SELECT ?, rows, root, note, at FROM checkpoints",
	} {
		if _, err := tx.ExecContext(ctx, q, before); err != nil {
			return fmt.Errorf("audit: put line %d aside: %w", before, err)
		}
	}
	for _, table := range []string{"audit", "tree", "checkpoints"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return fmt.Errorf("audit: put line %d aside: %w", before, err)
		}
	}
	if err := errors.Join(setEnd(ctx, tx, chain.Expect{Head: chain.Genesis}), store.SetMetaInt(ctx, tx, metaLine, a.Line)); err != nil {
		return fmt.Errorf("audit: begin line %d: %w", a.Line, err)
	}
	_, err = Append(ctx, tx, at, chain.Row{Kind: chain.Anchor, Args: order})
	return err
}

// Contains tells whether the audit, as far as it is sealed, has in it what was kept of it.
func Contains(ctx context.Context, tx *sql.Tx, kept checkpoint.Checkpoint) (bool, error) {
	if kept.Rows == 0 {
		return true, nil
	}
	sealed, err := Sealed(ctx, tx)
	if err != nil || sealed.Line != kept.Line || sealed.Rows < kept.Rows {
		return false, err
	}
	if root, err := tlog.TreeHash(sealed.Rows, nodes{ctx, tx}); err != nil || root != sealed.Root {
		if err := regrow(ctx, tx, sealed.Checkpoint); err != nil {
			return false, err
		}
	}
	root, err := tlog.TreeHash(kept.Rows, nodes{ctx, tx})
	if err != nil {
		return false, fmt.Errorf("audit: %w", err)
	}
	return root == kept.Root, nil
}

// Intent that a deed began by: in this line or, where that was anchored meanwhile, in an older one. A row that is gone or was bent leaves no more
// than the deed's ID.
func Intent(ctx context.Context, q store.Querier, seq int64, deed string) (chain.Row, error) {
	rows, err := q.QueryContext(ctx, "SELECT body FROM (SELECT 1 AS current, 0 AS line, body FROM audit WHERE seq = ?1 UNION ALL SELECT 0, line, body FROM old_audit WHERE seq = ?1) ORDER BY current DESC, line DESC", seq)
	if err != nil {
		return chain.Row{}, fmt.Errorf("audit: row %d: %w", seq, err)
	}
	defer rows.Close()
	for rows.Next() {
		var body string
		if err := rows.Scan(&body); err != nil {
			return chain.Row{}, fmt.Errorf("audit: row %d: %w", seq, err)
		}
		if r, err := chain.Decode(body); err == nil && r.Deed == deed {
			return r, nil
		}
	}
	return chain.Row{Deed: deed}, rows.Err()
}

// OldRows of a line that was put aside, in order.
func OldRows(ctx context.Context, q store.Querier, line int64) ([]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT body FROM old_audit WHERE line = ? ORDER BY seq", line)
	if err != nil {
		return nil, fmt.Errorf("audit: line %d: %w", line, err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var body string
		if err := rows.Scan(&body); err != nil {
			return nil, fmt.Errorf("audit: line %d: %w", line, err)
		}
		all = append(all, body)
	}
	return all, rows.Err()
}

// Order that the line began by, as the row says, and when that was written in Unix nanoseconds; empty for a line that nobody ordered.
func Order(ctx context.Context, q store.Querier) (order, at string, err error) {
	r, err := Row(ctx, q, 1)
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.Kind != chain.Anchor {
		return "", "", nil
	}
	return r.Args, r.At, err
}
