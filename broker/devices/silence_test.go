package devices

import (
	"crypto/ed25519"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
)

// A device that answers and gives no checkpoint that can be used is told of, or its audit would be taken for intact as long as it likes.
func TestSilenceIsBrought(t *testing.T) {
	signed := func(r checkpoint.Reply) http.HandlerFunc {
		return func(w http.ResponseWriter, asked *http.Request) {
			q, _, err := wire.OpenQuery(asked.Header.Get(wire.QueryHeader), []ed25519.PublicKey{public(1)})
			if err != nil {
				t.Error(err)
			}
			r.Device, r.Nonce = "web1", q.Nonce
			b, err := r.Sign(key(3))
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(b)
		}
	}
	more, err := checkpoint.Checkpoint{Rows: 50}.Sign("web1", key(3))
	if err != nil {
		t.Fatal(err)
	}
	root := checkpoint.Checkpoint{}.Root.String()
	for _, c := range []struct {
		name    string
		instead http.HandlerFunc
		why     string
	}{
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }, "does not prove to be the device"},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "at 12:00:07", http.StatusTeapot) }, "HTTP 418"},
		{"nothing", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "gave no answer"},
		{"for another checkpoint", signed(checkpoint.Reply{Checkpoint: more}), "answers for another checkpoint"},
		{"for another root", signed(checkpoint.Reply{Checkpoint: more, Since: 3}), "answers for another checkpoint"},
		{"what no status can hold", signed(checkpoint.Reply{Checkpoint: more, Since: 3, Known: root, Finding: &checkpoint.Finding{Detail: strings.Repeat("x", maxReply)}}), "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.act(3)
			r.d.Status.AuditKept = &v1alpha1.KeptAudit{Rows: 3, Root: root, At: metav1.Now()}
			r.must(r.api.Status().Update(t.Context(), r.d))
			r.instead = c.instead
			if r.round(0) {
				t.Errorf("brought at once: %+v", r.d.Status.Audit)
			}
			if !r.round(time.Minute) || r.d.Status.Audit.Reply != "" || !strings.Contains(r.d.Status.Audit.Finding, c.why) {
				t.Fatalf("got %+v, want it to say %q", r.d.Status.Audit, c.why)
			}
			if r.round(time.Minute) {
				t.Error("written again")
			}
			r.instead = nil
			if !r.round(time.Minute) || r.d.Status.Audit.Reply == "" || r.d.Status.Audit.Rows != 3 {
				t.Errorf("got %+v", r.d.Status.Audit)
			}
			r.instead = c.instead
			if r.round(time.Minute) {
				t.Error("brought at once, the second time")
			}
		})
	}
}
