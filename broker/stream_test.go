package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
)

// stream opens the agent's work stream. Lines that are not empty come through snapshots, empty ones through alive.
func (r *rig) stream() (snapshots <-chan doors.Snapshot, alive <-chan struct{}, stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/work", nil)
	must(r.t, err)
	res, err := (&http.Client{Transport: bearer(r.token)}).Do(req)
	must(r.t, err)
	if res.StatusCode != http.StatusOK {
		r.t.Fatalf("work stream: %s", res.Status)
	}
	s, a := make(chan doors.Snapshot, 100), make(chan struct{}, 100)
	go func() {
		defer close(s)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if lines.Text() == "" {
				a <- struct{}{}
				continue
			}
			var snap doors.Snapshot
			if err := json.Unmarshal(lines.Bytes(), &snap); err != nil {
				r.t.Errorf("line %q: %v", lines.Text(), err)
			}
			s <- snap
		}
	}()
	return s, a, cancel
}

// until reads snapshots until one is as wanted.
func until(t *testing.T, s <-chan doors.Snapshot, what string, ok func(doors.Snapshot) bool) doors.Snapshot {
	t.Helper()
	timeout := time.After(time.Minute)
	var last doors.Snapshot
	for {
		select {
		case snap, open := <-s:
			if !open {
				t.Fatalf("the stream ended before %s; last %+v", what, last)
			}
			if last = snap; ok(snap) {
				return snap
			}
		case <-timeout:
			t.Fatalf("no line with %s; last %+v", what, last)
		}
	}
}

func TestWorkStreamTellsTheStory(t *testing.T) {
	r := newRig(t, options{})
	s, _, stop := r.stream()
	defer stop()
	until(t, s, "the active item", func(s doors.Snapshot) bool {
		return s.Active != nil && s.Active.Name == "wi-1" && s.Active.Request == "please write"
	})
	p := r.submit("c1", "a")
	g := r.gate(p)
	until(t, s, "the waiting plan", func(s doors.Snapshot) bool { return s.Active.Plan != nil && s.Active.Plan.State == "AwaitingApproval" })
	r.outcome(g, v1alpha1.GateApproved, r.statement(g, p, r.approver))
	until(t, s, "the approved plan", func(s doors.Snapshot) bool {
		return s.Active.Plan.State == "Approved" && s.Active.Plan.Person == "lucas"
	})
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Done, "")
	until(t, s, "the step's end", func(s doors.Snapshot) bool { return s.Active.Plan.Steps[0].State == "Succeeded" })
	r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
	until(t, s, "the stop", func(s doors.Snapshot) bool { return s.Active.Stopped })
	r.newItem("wi-2")
	until(t, s, "the queued item", func(s doors.Snapshot) bool { return len(s.Ready) == 1 && s.Ready[0].Name == "wi-2" })
	r.status(r.item, func() { r.item.Status.State = v1alpha1.WorkItemClosed })
	r.activate("wi-2")
	until(t, s, "the next item", func(s doors.Snapshot) bool { return s.Active != nil && s.Active.Name == "wi-2" && len(s.Ended) == 1 })
}

func TestWorkStreamIsQuietAndAlive(t *testing.T) {
	r := newRig(t, options{})
	r.broker.stream.Keepalive = 50 * time.Millisecond
	s, alive, stop := r.stream()
	defer stop()
	until(t, s, "the first line", func(doors.Snapshot) bool { return true })
	r.spec(r.item, func() { r.item.Annotations = map[string]string{"x": "y"} }) // a change that nobody has to know
	for range 5 {
		select {
		case <-alive:
		case <-time.After(time.Minute):
			t.Fatal("no sign of life")
		}
	}
	select {
	case snap := <-s:
		t.Errorf("a line without news: %+v", snap)
	default:
	}
}

func TestStreamsOfOneAgentAreFew(t *testing.T) {
	r := newRig(t, options{})
	for range 4 {
		s, _, stop := r.stream()
		defer stop()
		until(t, s, "the first line", func(doors.Snapshot) bool { return true })
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/work", nil)
	must(t, err)
	res, err := (&http.Client{Transport: bearer(r.token)}).Do(req)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("fifth stream: %s", res.Status)
	}
}

func TestStreamsAreNotOpenedWithoutEnd(t *testing.T) {
	r := newRig(t, options{})
	last := ""
	for range 60 {
		ctx, stop := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/work", nil)
		must(t, err)
		res, err := (&http.Client{Transport: bearer(r.token)}).Do(req)
		must(t, err)
		var p doors.Problem
		if res.StatusCode == http.StatusTooManyRequests {
			must(t, json.NewDecoder(res.Body).Decode(&p))
			last = p.Reason
		}
		stop()
		res.Body.Close()
	}
	if last != "RateLimited" {
		t.Errorf("60 streams in a row, the last refusal %q", last)
	}
}

func TestTheDoorIsShutToOthers(t *testing.T) {
	r := newRig(t, options{})
	for name, token := range map[string]string{"nobody": "", "nonsense": "x.y.z", "a bent token": r.token[:len(r.token)-4] + "AAAA"} {
		for _, path := range []string{"/v1/work", "/mcp", "/", "/v1/other"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, strings.NewReader("{}"))
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			var p doors.Problem
			if err := json.NewDecoder(res.Body).Decode(&p); err != nil || res.StatusCode != http.StatusUnauthorized || p.Reason != "Unauthenticated" {
				t.Errorf("%s at %s: %s, %+v, %v", name, path, res.Status, p, err)
			}
			res.Body.Close()
		}
	}
	if podauth.MaxAge > 10*time.Second {
		t.Error("answers are remembered for more than 10 s")
	}
}
