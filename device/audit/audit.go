// Package audit keeps a device's chain of rows (device/wire/chain) in its store.
package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"
	"unicode/utf8"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/checkpoint"
)

// The end of the chain is kept beside it as well, so that a newest row that was cut off is missed.
const (
	metaRows = "audit.rows"
	metaHead = "audit.head"
)

// End of the chain: how many rows, and the hash of the last.
func End(ctx context.Context, q store.Querier) (chain.Expect, error) {
	end := chain.Expect{Head: chain.Genesis}
	var head sql.NullString
	err := q.QueryRowContext(ctx, "SELECT rows.value, head.value FROM meta AS rows LEFT JOIN meta AS head ON head.key = ? WHERE rows.key = ?", metaHead, metaRows).Scan(&end.Rows, &head)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return chain.Expect{}, fmt.Errorf("end of the audit: %w", err)
	case end.Rows > 0:
		end.Head = head.String
	}
	return end, nil
}

// setEnd of the chain.
func setEnd(ctx context.Context, tx *sql.Tx, end chain.Expect) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO meta VALUES (?, ?), (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", metaRows, strconv.FormatInt(end.Rows, 10), metaHead, end.Head)
	return err
}

// Append a row in a transaction. Seq, Prev, At, ArgsHash are set here, and Args cut. It returns the new end.
func Append(ctx context.Context, tx *sql.Tx, at time.Time, r chain.Row) (chain.Expect, error) {
	end, err := End(ctx, tx)
	if err != nil {
		return chain.Expect{}, fmt.Errorf("audit: %w", err)
	}
	r.Seq, r.Prev, r.At = end.Rows+1, end.Head, strconv.FormatInt(at.UnixNano(), 10)
	r.ArgsHash, r.Args = canonical.Hex([]byte(r.Args)), cut(r.Args, chain.MaxArgs)
	body, err := r.Encode()
	if err != nil {
		return chain.Expect{}, fmt.Errorf("audit: %w", err)
	}
	end = chain.Expect{Rows: r.Seq, Head: chain.Hash(body)}
	if _, err := tx.ExecContext(ctx, "INSERT INTO audit VALUES (?, ?, ?)", r.Seq, body, end.Head); err != nil {
		return chain.Expect{}, fmt.Errorf("audit: row %d: %w", r.Seq, err)
	}
	if err := setEnd(ctx, tx, end); err != nil {
		return chain.Expect{}, fmt.Errorf("audit: %w", err)
	}
	return end, nil
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Row of the chain, decoded.
func Row(ctx context.Context, q store.Querier, seq int64) (chain.Row, error) {
	var body string
	if err := q.QueryRowContext(ctx, "SELECT body FROM audit WHERE seq = ?", seq).Scan(&body); err != nil {
		return chain.Row{}, fmt.Errorf("audit: row %d: %w", seq, err)
	}
	return chain.Decode(body)
}

// Rows of the chain in order, those after seq.
func Rows(ctx context.Context, q store.Querier, after int64) iter.Seq2[chain.Record, error] {
	return func(yield func(chain.Record, error) bool) {
		rows, err := q.QueryContext(ctx, "SELECT body, audit.hash, tree.hash FROM audit LEFT JOIN tree ON level = 0 AND n = seq - 1 WHERE seq > ? ORDER BY seq", after)
		if err != nil {
			yield(chain.Record{}, fmt.Errorf("audit: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var r chain.Record
			var leaf []byte
			if err := rows.Scan(&r.Body, &r.Hash, &leaf); err != nil {
				yield(chain.Record{}, fmt.Errorf("audit: %w", err))
				return
			}
			copy(r.Leaf[:], leaf)
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(chain.Record{}, fmt.Errorf("audit: %w", err))
		}
	}
}

// Verify the whole chain against its own end, its tree and checkpoints, and what else was seen of it. The error is a *chain.Finding when the chain is
// at fault.
func Verify(ctx context.Context, q store.Querier, seen ...chain.Expect) (chain.Expect, error) {
	own, err := End(ctx, q)
	if err != nil {
		return chain.Expect{}, err
	}
	sealed, err := checkpoints(ctx, q)
	if err != nil {
		return chain.Expect{}, err
	}
	end, err := chain.Verify(Rows(ctx, q, 0), append(append(sealed, own), seen...)...)
	if err != nil {
		return end, err
	}
	if end.Rows > own.Rows {
		return end, &chain.Finding{Trouble: checkpoint.Forked, Row: own.Rows + 1, Detail: "it was not written by the device, which knows of fewer rows"}
	}
	return end, nil
}

// pageBytes bounds a page.
const pageBytes = 1 << 20

// Page of rows after seq, as many as fit, and whether there are more.
func Page(ctx context.Context, q store.Querier, after int64) (rows []string, more bool, err error) {
	size := 0
	for r, err := range Rows(ctx, q, after) {
		if err != nil {
			return nil, false, err
		}
		if size += len(r.Body); size > pageBytes && len(rows) > 0 {
			return rows, true, nil
		}
		rows = append(rows, r.Body)
	}
	return rows, false, nil
}
