package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
)

// What is typed twice decides once. The agent brings its next plan and its next halt at once, so that they stand in the room when the same
// words come again; they are decided by their code only. It is the same whatever the clock of the person's homeserver shows.
func TestTypedTwice(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"clocks agree": 0, "the person's homeserver is ahead": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.base = skewed(t, r.hs.BaseURL, r.lucas.UserID().String(), ahead)
			r.start()
			asked := r.say(r.lucas, "nginx", "")
			item := r.item(1)
			r.work(item, v1alpha1.WorkItemWorking)
			next := r.say(r.lucas, "and php", "")
			other := r.item(2)

			first := r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
			r.hear(r.gates, "approve rev-1", asked, asked)
			r.say(r.lucas, "approve rev-1", "")
			r.approval(first)
			r.end(first, v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))
			second := r.gate(other, 1, fmt.Sprintf(plan, 1, 1))
			r.hear(r.gates, "approve rev-1", next, next)
			e := r.say(r.lucas, "approve rev-1", "")
			code := approval.Code(second.Spec.Digest, string(second.UID))
			r.hear(r.gates, "^Nothing was approved: you decided about rev-1 for \"nginx\" just now, .* Read rev-1 for \"and php\"; if it is right: `approve "+code+"`", e, "")
			if n := len(r.approvals()); n != 1 {
				t.Fatalf("%d approvals", n)
			}
			r.say(r.lucas, "approve "+code, "")
			if a := r.approval(second); a.Spec.Decision != v1alpha1.DecisionApprove || a.Spec.Channel.Evidence != v1alpha1.EvidenceTypedCode {
				t.Errorf("%+v", a.Spec)
			}
			r.end(second, v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))

			halt := r.haltGate(item, 1)
			r.hear(r.gates, "abandon$", asked, asked)
			r.say(r.lucas, "continue", "")
			r.approval(halt)
			d := by("lucas", v1alpha1.DecisionApprove)
			d.Answer = v1alpha1.AnswerContinue
			r.end(halt, v1alpha1.GateApproved, "", d)
			r.hear(r.gates, "^✓ lucas: continue", asked, asked)
			again := r.haltGate(item, 2)
			r.hear(r.gates, "abandon$", asked, asked)
			e = r.say(r.lucas, "continue", "")
			code = approval.Code(again.Spec.Digest, string(again.UID))
			r.hear(r.gates, "^Nothing was answered: you decided about the halt just now, .*`continue "+code+"`", e, "")
			if n := len(r.approvals()); n != 3 {
				t.Fatalf("%d approvals", n)
			}
			r.say(r.lucas, "replan "+code+" use web2", "")
			if a := r.approval(again); a.Spec.Answer != v1alpha1.AnswerReplan || a.Spec.Text != "use web2" {
				t.Errorf("%+v", a.Spec)
			}
		})
	}
}

// skewed stands before a homeserver and tells another time for what one sender says, as that sender's own homeserver might.
func skewed(t *testing.T, base, sender string, by time.Duration) string {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	direct := proxy.Director
	proxy.Director = func(r *http.Request) {
		direct(r)
		r.Header.Del("Accept-Encoding")
	}
	proxy.ModifyResponse = func(res *http.Response) error {
		d := json.NewDecoder(res.Body)
		d.UseNumber()
		var body any
		if err := d.Decode(&body); err != nil {
			return err
		}
		if err := shift(body, sender, by); err != nil {
			return err
		}
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		res.Header.Set("Content-Length", strconv.Itoa(len(b)))
		return nil
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	return srv.URL
}

// shift the times of a sender's events, wherever they are in an answer.
func shift(v any, sender string, by time.Duration) error {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			if err := shift(x, sender, by); err != nil {
				return err
			}
		}
	case map[string]any:
		if at, ok := v["origin_server_ts"].(json.Number); ok && v["sender"] == sender {
			ms, err := at.Int64()
			if err != nil {
				return err
			}
			v["origin_server_ts"] = ms + by.Milliseconds()
		}
		for _, x := range v {
			if err := shift(x, sender, by); err != nil {
				return err
			}
		}
	}
	return nil
}
