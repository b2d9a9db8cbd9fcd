package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/sanitize"
)

// VerifyAudit of a state directory, against its own end and what was seen of it before. It may be in use.
func VerifyAudit(ctx context.Context, dir string, w io.Writer, seen ...chain.Expect) error {
	st, err := store.OpenReadOnly(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	tx, err := st.DB().BeginTx(ctx, nil) // one state, while a device writes on
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	end, err := audit.Verify(ctx, tx, seen...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "the audit chain is whole: %d rows, head %s\n", end.Rows, end.Head)
	return err
}

// ShowAudit writes one line a row, or each row's JSON.
func ShowAudit(ctx context.Context, dir string, after int64, asJSON bool, w io.Writer) error {
	st, err := store.OpenReadOnly(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	for rec, err := range audit.Rows(ctx, st.DB(), after) {
		if err != nil {
			return err
		}
		if asJSON {
			fmt.Fprintln(w, rec.Body)
			continue
		}
		r, err := chain.Decode(rec.Body)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, line(r))
	}
	return nil
}

func line(r chain.Row) string {
	at := r.At
	if ns, err := strconv.ParseInt(r.At, 10, 64); err == nil {
		at = time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	deed := r.Deed[:min(12, len(r.Deed))]
	s := fmt.Sprintf("%6d %s %-8s %-9s %-8s %s agent=%s item=%s", r.Seq, at, r.Kind, r.State, sanitize.Line(r.Capability, 20), sanitize.Line(deed, 12),
		sanitize.Line(r.Agent, 64), sanitize.Line(r.CorrelationID, 64))
	if r.Reason != "" {
		s += " reason=" + sanitize.Line(r.Reason, 40)
	}
	if r.Gate != "" {
		approvers, _ := json.Marshal(r.Approvers) // strings always marshal
		s += fmt.Sprintf(" gate=%s step=%d attempt=%d approvers=%s", sanitize.Line(r.Gate, 64), r.Step, r.Attempt, sanitize.Line(string(approvers), 200))
	}
	return s + " args=" + sanitize.Line(r.Args, 200)
}
