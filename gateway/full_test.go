package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/doors"
)

// pages leaves so many more for the gateway's store, as a volume that is nearly full does.
func (r *rig) pages(n int) {
	r.t.Helper()
	r.must(r.store.Update(r.t.Context(), func(tx *store.Tx) error {
		var now int
		if err := tx.QueryRow("PRAGMA page_count").Scan(&now); err != nil {
			return err
		}
		_, err := tx.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", now+n))
		return err
	}))
}

// The store's volume is full: pods are told, nothing that was taken is lost, and what people say meanwhile is taken in once there is room.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ops := r.pod("ops")
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.letters(ops, 1)

	long := strings.Repeat("word ", 3000)
	send := func(n int, answer any) int {
		t.Helper()
		return r.call(ops, http.MethodPost, "/v1/outbox", doors.Outgoing{ID: fmt.Sprint(n), WorkItem: item.Name, Kind: doors.Say, Text: fmt.Sprintf("answer %d %s", n, long)}, answer)
	}
	status, taken := http.StatusAccepted, 0
	for ; status == http.StatusAccepted && taken < 50; taken++ {
		r.pages(0)
		if taken < 3 {
			r.pages(100)
		}
		status = send(taken, nil)
	}
	taken-- // the last was not
	var p doors.Problem
	if status = send(999, &p); status != http.StatusServiceUnavailable || p.Reason != "StoreFull" || taken < 3 {
		t.Fatalf("after %d, status %d, %+v", taken, status, p)
	}
	big := r.say(r.lucas, "and the disk "+long, asked)
	r.pages(1000)
	if status := send(999, nil); status != http.StatusAccepted {
		t.Errorf("with room, status %d", status)
	}
	r.hear(r.ops, "^answer 999 ", asked, asked)
	for n := range taken {
		if got := r.said(fmt.Sprintf("^answer %d ", n)); got != 1 {
			t.Errorf("answer %d was said %d times", n, got)
		}
	}
	letters := r.letters(ops, 2)
	if got := letters[1]; got.ID != big.String() {
		t.Errorf("%+v", got)
	}
}
