package daemon

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/sanitize"
)

// Kept checkpoint in a file: what the audit was, by the device's own signature, when somebody else took note of it. The key is the config's when
// none is given; a checkpoint bears the name of its device, and it must be the config's where that has one.
func Kept(c config.Config, file, publicKey string) (chain.Expect, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return chain.Expect{}, err
	}
	var key ed25519.PublicKey
	switch {
	case publicKey != "":
		key, err = dsse.ParseKey(publicKey)
	case c.Key != "":
		var private ed25519.PrivateKey
		if private, err = config.PrivateKey(c.Key); err == nil {
			key = public(private)
		}
	default:
		err = errors.New("give --config, or --key with the device's public key")
	}
	if err != nil {
		return chain.Expect{}, err
	}
	device := c.Device
	if device == "" {
		device = checkpoint.DeviceOf(string(text))
	}
	k, err := checkpoint.Open(string(text), device, key)
	return chain.Expect{Line: k.Line, Rows: k.Rows, Root: k.Root}, err
}

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
	line, err := audit.Line(ctx, tx)
	if err != nil {
		return err
	}
	for _, e := range seen {
		if e.Line != line {
			return fmt.Errorf("the checkpoint is of line %d, and the audit is at line %d: an order of the root key has ended the other; its rows are shown by audit show --line %d", e.Line, line, e.Line)
		}
	}
	end, err := audit.Verify(ctx, tx, seen...)
	if err != nil {
		return err
	}
	if line > 0 {
		if err := showAnchor(ctx, tx, w); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "the audit chain is whole: %d rows, head %s, root %s\n", end.Rows, end.Head, end.Root)
	return err
}

// showAnchor tells by which order the line began.
func showAnchor(ctx context.Context, q store.Querier, w io.Writer) error {
	order, at, err := audit.Order(ctx, q)
	if err != nil {
		return err
	}
	a, by, err := checkpoint.ReadAnchor(order)
	if err != nil {
		return &chain.Finding{Trouble: checkpoint.Forked, Row: 1, Detail: "the line does not begin with an order: " + err.Error()}
	}
	ns, _ := strconv.ParseInt(at, 10, 64)
	_, err = fmt.Fprintf(w, "anchored: line %d, at row 1 at %s by root key %s (%s), for line %d was %s at row %d; its rows are shown by audit show --line %d\n", a.Line,
		time.Unix(0, ns).UTC().Format(time.RFC3339), by, sanitize.Line(a.Reason, 300), a.Before, sanitize.Line(string(a.Trouble), 20), a.Row, a.Before)
	return err
}

// ShowLine of the audit that has ended: its rows as they are hashed, whatever is wrong with them.
func ShowLine(ctx context.Context, dir string, line int64, w io.Writer) error {
	st, err := store.OpenReadOnly(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	rows, err := audit.OldRows(ctx, st.DB(), line)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("there is no line %d that has ended", line)
	}
	for _, body := range rows {
		fmt.Fprintln(w, body)
	}
	return nil
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
