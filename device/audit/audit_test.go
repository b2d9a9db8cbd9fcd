package audit

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/canonical"
)

func TestPages(t *testing.T) {
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	args := strings.Repeat("ü", chain.MaxArgs) // twice the cap in bytes
	const n = 600
	err = st.Tx(t.Context(), func(tx *sql.Tx) error {
		for range n {
			if _, err := Append(t.Context(), tx, time.Unix(1, 2), chain.Row{Kind: chain.Intent, Args: "x" + args}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	pages := 0
	for more := true; more; pages++ {
		var rows []string
		if rows, more, err = Page(t.Context(), st.DB(), int64(len(all))); err != nil {
			t.Fatal(err)
		}
		if size := len(strings.Join(rows, "")); size > pageBytes {
			t.Errorf("a page of %d bytes", size)
		}
		all = append(all, rows...)
	}
	if len(all) != n || pages < 2 {
		t.Errorf("%d rows on %d pages", len(all), pages)
	}
	end, err := Verify(t.Context(), st.DB(), chain.Expect{Rows: n, Head: chain.Hash(all[n-1])})
	if err != nil || end.Rows != n {
		t.Errorf("got %+v, %v", end, err)
	}
	r, err := Row(t.Context(), st.DB(), 2)
	if err != nil || len(r.Args) != chain.MaxArgs-1 || r.ArgsHash != canonical.Hex([]byte("x"+args)) || r.At != "1000000002" || r.Prev != chain.Hash(all[0]) {
		t.Errorf("%d bytes of args, %+v, %v", len(r.Args), r, err)
	}
	if rows, more, err := Page(t.Context(), st.DB(), n); len(rows) != 0 || more || err != nil {
		t.Errorf("past the end: %d rows, %t, %v", len(rows), more, err)
	}
	// A row that the device did not write, in good form.
	body, err := chain.Row{Seq: n + 1, Kind: chain.Intent, Prev: chain.Hash(all[n-1])}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.DB().Exec("INSERT INTO audit VALUES (?, ?, ?)", n+1, body, chain.Hash(body)); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), st.DB()); err == nil || !strings.Contains(err.Error(), "row 601: Forked") {
		t.Errorf("got %v", err)
	}
}
