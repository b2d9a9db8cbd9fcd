package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/doors"
)

// liar stands before the homeserver and refuses messages that it would take.
type liar struct {
	proxy *httputil.ReverseProxy

	mu      sync.Mutex
	pattern *regexp.Regexp // of what it refuses, found in the content; nil for nothing
	times   int
	status  int
	code    string
	refused int
}

// lied puts a liar between gateway and homeserver.
func (r *rig) lied() *liar {
	r.t.Helper()
	target, err := url.Parse(r.hs.BaseURL)
	r.must(err)
	l := &liar{proxy: httputil.NewSingleHostReverseProxy(target)}
	l.proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	l.proxy.FlushInterval = -1
	srv := httptest.NewServer(l)
	r.t.Cleanup(srv.Close)
	r.base = srv.URL
	return l
}

// about what it lies from now on, and how often.
func (l *liar) about(pattern string, times, status int, code string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pattern, l.times, l.status, l.code, l.refused = regexp.MustCompile(pattern), times, status, code, 0
}

func (l *liar) told() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/send/m.room.message/") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if status, code := l.refuses(body); status > 0 {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"errcode":%q,"error":"no"}`, code)
			return
		}
	}
	l.proxy.ServeHTTP(w, r)
}

func (l *liar) refuses(body []byte) (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pattern == nil || l.refused == l.times || !l.pattern.Match(body) {
		return 0, ""
	}
	l.refused++
	return l.status, l.code
}

// A message that the homeserver refuses takes along nothing that follows it, and what asks for a decision reaches the room.
func TestOneRefusalHidesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.lied()
	r.start()
	pod := r.pod("ops")
	for n, tc := range []struct {
		name, pattern string
		status        int
		code          string
	}{
		{"the root is too large", `New item by-hand`, http.StatusBadRequest, "M_TOO_LARGE"},
		{"the root is forbidden", `New item by-hand`, http.StatusBadRequest, "M_FORBIDDEN"},
		{"progress is too large", `• one`, http.StatusBadRequest, "M_TOO_LARGE"},
		{"progress is forbidden", `• one`, http.StatusBadRequest, "M_FORBIDDEN"},
		{"the gate is too large", `approve rev-`, http.StatusBadRequest, "M_TOO_LARGE"},
		{"the gate is forbidden", `approve rev-`, http.StatusBadRequest, "M_FORBIDDEN"},
		{"the gate has a thread that is none", `approve rev-`, http.StatusBadRequest, "M_UNKNOWN"},
		{"the gate is far too large", `approve rev-`, http.StatusRequestEntityTooLarge, "M_TOO_LARGE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l.about(tc.pattern, 1, tc.status, tc.code)
			before := r.say(r.eve, "at the beginning of "+tc.name, "")
			w := &v1alpha1.WorkItem{ObjectMeta: r.meta(fmt.Sprintf("by-hand-%d", n)), Spec: v1alpha1.WorkItemSpec{
				Agent: "ops", Title: "clean", Request: "remove old kernels", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes},
			}}
			r.create(w)
			tell := func(kind, id string) {
				t.Helper()
				out := doors.Outgoing{ID: fmt.Sprint(id, n), WorkItem: w.Name, Kind: kind, Text: fmt.Sprintf("%s of %d", id, n)}
				if got := r.call(pod, http.MethodPost, "/v1/outbox", out, nil); got != http.StatusAccepted {
					t.Fatalf("status %d", got)
				}
			}
			tell(doors.Progress, "one")
			tell(doors.Say, "first")
			tell(doors.Progress, "two")
			tell(doors.Say, "second")
			g := r.gate(w, 1, fmt.Sprintf(plan, 1, 1))
			r.hear(r.ops, fmt.Sprintf("• two of %d", n), before, "")
			r.hear(r.ops, fmt.Sprintf("^first of %d", n), before, "")
			r.hear(r.ops, fmt.Sprintf("^second of %d", n), before, "")
			r.hear(r.gates, "approve rev-1", before, "")
			if l.told() != 1 {
				t.Fatalf("it lied %d times, so this showed nothing", l.told())
			}
			r.say(r.lucas, "approve "+approval.Code(g.Spec.Digest, string(g.UID)), "")
			r.approval(g)
			r.end(g, v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))
			r.hear(r.gates, "^✓ rev-1 approved by lucas", before, "")
		})
	}
}

// message waits for what the agent's status says of its conversation.
func (r *rig) message(want string) {
	r.t.Helper()
	r.wait("the conversation's message", func(ctx context.Context) error {
		var a v1alpha1.Agent
		if err := r.admin.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: "ops"}, &a); err != nil {
			return err
		}
		if c := a.Status.Conversation; c == nil || !strings.HasPrefix(c.Message, want) || (want == "") != (c.Message == "") {
			return fmt.Errorf("conversation %+v", c)
		}
		return nil
	})
}

// A gate that is deleted while the homeserver refuses it is given up, and never shown; also when that happens while the gateway is away.
func TestDeletedGateIsNotShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.lied()
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	for n, away := range []bool{false, true} {
		l.about(`approve rev-`, 1<<30, http.StatusBadRequest, "M_TOO_LARGE")
		g := r.gate(item, int32(n+1), fmt.Sprintf(plan, n+1, n+1))
		r.message("The homeserver refuses 1 of the messages that ask for a decision (M_TOO_LARGE: no).")
		if away {
			r.halt()
		}
		r.must(r.admin.Delete(t.Context(), g))
		if away {
			r.start()
		}
		r.message("")
	}
	l.about(`approve rev-`, 0, 0, "")
	r.gate(item, 3, fmt.Sprintf(plan, 3, 3)) // and others are
	r.hear(r.gates, `approve rev-3`, asked, "")
	if n := r.said(`approve rev-[12]`); n != 0 {
		t.Errorf("%d gates that are gone were shown", n)
	}
}

// A gate that the homeserver refuses again and again: people are told where it is, in the room and in the Agent's status, and see it once it is
// taken.
func TestGateRefusedForLong(t *testing.T) { // not beside others, whose refusals would be counted too
	r := newRig(t)
	l := r.lied()
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	counted := testutil.ToFloat64(metrics.Refused.WithLabelValues("gate"))
	l.about(`approve rev-1`, 1<<30, http.StatusBadRequest, "M_TOO_LARGE")
	g := r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, `^Something waits for a decision, and this homeserver refuses to show it \(M_TOO_LARGE: no\)\. .*kubectl get gates -A -l nisse\.io/work-item=`+item.Name, asked, "")
	r.message("The homeserver refuses 1 of the messages that ask for a decision (M_TOO_LARGE: no).")
	if got := testutil.ToFloat64(metrics.Refused.WithLabelValues("gate")) - counted; got < 2 {
		t.Errorf("%g refusals were counted", got)
	}
	r.halt() // it goes on where it was
	r.start()
	l.about(`approve rev-1`, 0, 0, "")
	r.hear(r.gates, `approve rev-1`, asked, "")
	r.message("")
	r.say(r.lucas, "approve rev-1", "")
	r.approval(g)
	if n := r.said("^Something waits for a decision"); n != 1 {
		t.Errorf("told %d times", n)
	}
}
