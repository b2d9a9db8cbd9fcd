package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/doors"
)

// A pod reads and writes its own agent's only, and nothing of it is doubled or too large.
func TestDoor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ops, dev := r.pod("ops"), r.pod("dev")
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	mail := r.letters(ops, 1)

	say := func(id, item, text string) doors.Outgoing {
		return doors.Outgoing{ID: id, WorkItem: item, Kind: doors.Say, Text: text}
	}
	for _, tc := range []struct {
		name   string
		token  string
		out    doors.Outgoing
		status int
	}{
		{"words", ops, say("1", item.Name, "hello"), http.StatusAccepted},
		{"the same again", ops, say("1", item.Name, "hello"), http.StatusAccepted},
		{"other words under the ID", ops, say("1", item.Name, "goodbye"), http.StatusConflict},
		{"progress", ops, doors.Outgoing{ID: "1", WorkItem: item.Name, Kind: doors.Progress, Text: "step"}, http.StatusAccepted},
		{"the same progress again", ops, doors.Outgoing{ID: "1", WorkItem: item.Name, Kind: doors.Progress, Text: "step"}, http.StatusAccepted},
		{"other progress under the ID", ops, doors.Outgoing{ID: "1", WorkItem: item.Name, Kind: doors.Progress, Text: "leap"}, http.StatusConflict},
		{"another agent's item", dev, say("1", item.Name, "hello"), http.StatusNotFound},
		{"no item", ops, say("2", "wi-none", "hello"), http.StatusNotFound},
		{"no name", ops, say("2", "", "hello"), http.StatusNotFound},
		{"an odd name", ops, say("2", "../../secrets?x=/y", "hello"), http.StatusNotFound},
		{"no ID", ops, say("", item.Name, "hello"), http.StatusBadRequest},
		{"a long ID", ops, say(strings.Repeat("x", 200), item.Name, "hello"), http.StatusBadRequest},
		{"no words", ops, say("2", item.Name, " \n"), http.StatusBadRequest},
		{"no such kind", ops, doors.Outgoing{ID: "2", WorkItem: item.Name, Kind: "gate", Text: "x"}, http.StatusBadRequest},
		{"too much", ops, say("2", item.Name, strings.Repeat("x", 33<<10)), http.StatusRequestEntityTooLarge},
		{"far too much", ops, say("2", item.Name, strings.Repeat("x", 1<<20)), http.StatusRequestEntityTooLarge},
		{"as much as may be", ops, say("3", item.Name, strings.Repeat("<&>\"", 8<<10)), http.StatusAccepted},
		{"nobody", "", say("4", item.Name, "hello"), http.StatusUnauthorized},
		{"a bent token", ops[:len(ops)-4] + "AAAA", say("4", item.Name, "hello"), http.StatusUnauthorized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := r.call(tc.token, http.MethodPost, "/v1/outbox", tc.out, nil); got != tc.status {
				t.Errorf("status %d, want %d", got, tc.status)
			}
		})
	}

	epoch := r.epoch(ops)
	var inbox doors.Inbox
	for _, tc := range []struct {
		name, token, path string
		status, letters   int
	}{
		{"its own letters", ops, "?after=0&epoch=" + epoch, http.StatusOK, 1},
		{"after the last", ops, "?after=1&epoch=" + epoch, http.StatusOK, 0},
		{"another agent has none", dev, "?after=0&epoch=" + epoch, http.StatusOK, 0},
		{"another epoch", ops, "?after=0&epoch=other", http.StatusConflict, 0},
		{"no epoch", ops, "", http.StatusConflict, 0},
		{"an odd number", ops, "?after=x&epoch=" + epoch, http.StatusBadRequest, 0},
		{"below zero", ops, "?after=-1&epoch=" + epoch, http.StatusBadRequest, 0},
		{"an odd wait", ops, "?wait=soon&epoch=" + epoch, http.StatusBadRequest, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inbox = doors.Inbox{}
			if got := r.call(tc.token, http.MethodGet, "/v1/inbox"+tc.path, nil, &inbox); got != tc.status || len(inbox.Messages) != tc.letters {
				t.Errorf("status %d with %d letters, want %d with %d", got, len(inbox.Messages), tc.status, tc.letters)
			}
		})
	}
	if got := r.call(ops, http.MethodPost, "/v1/inbox/ack", doors.Ack{Epoch: epoch, Seq: mail[0].Seq}, nil); got != http.StatusNoContent {
		t.Errorf("ack got %d", got)
	}
	if got := r.call(ops, http.MethodPost, "/v1/inbox/ack", doors.Ack{Epoch: "other", Seq: 1}, nil); got != http.StatusConflict {
		t.Errorf("ack of another epoch got %d", got)
	}

	// A letter wakes who waits.
	woken := make(chan int, 1)
	go func() {
		var got doors.Inbox
		r.call(ops, http.MethodGet, "/v1/inbox?after=1&wait=30&epoch="+epoch, nil, &got)
		woken <- len(got.Messages)
	}()
	r.say(r.lucas, "and quickly", asked)
	if n := <-woken; n != 1 {
		t.Errorf("woken with %d letters", n)
	}
	// The epoch and the letters survive the gateway.
	r.halt()
	r.start()
	if r.epoch(ops) != epoch {
		t.Error("another epoch after a restart")
	}
	if got := r.letters(ops, 2); got[1].Text != "and quickly" {
		t.Errorf("letters %+v", got)
	}
	r.hear(r.ops, `^<&>`, asked, asked)
	for pattern, n := range map[string]int{"^hello$": 1, "^• step$": 1, "goodbye|leap": 0} {
		if got := r.said(pattern); got != n {
			t.Errorf("%q was said %d times, want %d", pattern, got, n)
		}
	}
}

// A pod that shouts without end is slowed down: what others have to say finds its way, and what is kept of the shouting is bounded.
func TestDoorSlowsDownWhoShouts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ops, dev := r.pod("ops"), r.pod("dev")
	r.say(r.lucas, "nginx", "")
	item := r.item(1)
	refused := 0
	for n := range 300 {
		out := doors.Outgoing{ID: fmt.Sprint(n), WorkItem: item.Name, Kind: doors.Progress, Text: "again"}
		switch status := r.call(ops, http.MethodPost, "/v1/outbox", out, nil); status {
		case http.StatusAccepted:
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("status %d", status)
		}
	}
	if refused == 0 {
		t.Error("300 requests in a row were taken")
	}
	if got := r.call(dev, http.MethodGet, "/v1/inbox", nil, nil); got != http.StatusConflict {
		t.Errorf("another agent's pod got %d", got)
	}
}

// Who has said a day's worth is told until when, also by the gateway that comes next. What was taken before stays taken.
func TestDoorHasABudgetForTheDay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ops := r.pod("ops")
	r.say(r.lucas, "nginx", "")
	item := r.item(1)
	send := func(id, kind string) (int, doors.Problem) {
		t.Helper()
		var p doors.Problem
		return r.call(ops, http.MethodPost, "/v1/outbox", doors.Outgoing{ID: id, WorkItem: item.Name, Kind: kind, Text: "hello"}, &p), p
	}
	if got := r.call(ops, http.MethodPost, "/v1/outbox", doors.Outgoing{ID: "1", WorkItem: item.Name, Kind: doors.Say, Text: "hello"}, nil); got != http.StatusAccepted {
		t.Fatalf("status %d", got)
	}
	r.must(r.store.Update(t.Context(), func(tx *store.Tx) error { return tx.Spend("ops", store.DayBytes-1200, time.Now()) }))
	for range 2 {
		for _, kind := range []string{doors.Say, doors.Progress} {
			if status, p := send("2", kind); status != http.StatusTooManyRequests || p.Reason != "BudgetSpent" || !strings.Contains(p.Message, "this is taken from") {
				t.Errorf("%s: status %d, %+v", kind, status, p)
			}
		}
		if got := r.call(ops, http.MethodPost, "/v1/outbox", doors.Outgoing{ID: "1", WorkItem: item.Name, Kind: doors.Say, Text: "hello"}, nil); got != http.StatusAccepted {
			t.Errorf("what was taken before got %d", got)
		}
		r.halt()
		r.start()
	}
	r.hear(r.ops, "^hello$", "", "")
	if n := r.said("^hello$|^• hello$"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

func (r *rig) epoch(token string) string {
	r.t.Helper()
	var inbox doors.Inbox
	r.call(token, http.MethodGet, "/v1/inbox", nil, &inbox)
	return inbox.Epoch
}
