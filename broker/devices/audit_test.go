package devices

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/replica"
	"nisse.io/nisse/device"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/testrig"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/signed"
)

func TestMain(m *testing.M) { apitest.Main(m) }

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

// rig is a registry at a real API server, with one real device, whose Device object the test judges as the manager does.
type rig struct {
	t        *testing.T
	api      client.Client
	registry *Registry
	metrics  *prometheus.Registry
	now      time.Time
	d        *v1alpha1.Device
	target   Target
	digest   string
	file     string
	calls    int
	// instead of the device's own, the answer about a checkpoint, or at another path that is slow; nil for the device's.
	instead http.HandlerFunc
	slow    string
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	_, admin := apitest.Start(t)
	r := &rig{t: t, api: admin, metrics: prometheus.NewRegistry(), now: time.Now()}
	ns, dir := apitest.Namespace(t, admin), t.TempDir()
	r.file = dir + "/a"
	r.must(os.WriteFile(r.file, []byte("x"), 0o600))
	o, m := signed.Manifest(t, key(4), ns, fmt.Sprintf(`
v: 1
device: web1
privilege: User
keys: {request: [%q], approval: [%q]}
paths: {fs.read: [{glob: "%s/**", approval: None}]}
limits: {writeBytes: 1, outputBytes: 1000, timeoutSeconds: 60}`, dsse.EncodeKey(public(1)), dsse.EncodeKey(public(2)), dir))
	digest, err := m.Digest()
	r.must(err)
	r.digest = digest
	d, h, err := device.New(context.WithoutCancel(t.Context()), device.Options{Dir: t.TempDir(), Device: "web1", RootKey: public(4), Key: key(3), SealAfter: time.Millisecond})
	r.must(err)
	_, err = d.Install(t.Context(), o.Spec.Signature)
	r.must(err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.instead != nil && q.URL.Path == cmp.Or(r.slow, "/v1/checkpoint") {
			r.instead(w, q)
			return
		}
		h.ServeHTTP(w, q)
	}))
	t.Cleanup(func() {
		srv.Close()
		r.must(d.Close())
	})
	r.target = Target{Name: "web1", URL: srv.URL, Key: public(3)}
	r.d = &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: srv.URL, PublicKey: dsse.EncodeKey(public(3)), RootKey: dsse.EncodeKey(public(4))}}
	r.must(admin.Create(t.Context(), r.d))
	now := func() time.Time { return r.now }
	r.registry = NewRegistry(NewClient(key(1), time.Now), admin, ns, slog.New(slog.NewTextHandler(io.Discard, nil)), now, r.metrics)
	return r
}

// act on the device, which leaves two rows, and wait until they are sealed.
func (r *rig) act(rows int64) {
	r.t.Helper()
	r.calls++
	now := time.Now().Unix()
	a, err := r.registry.client.Call(r.t.Context(), r.target, wire.Request{Device: "web1", ManifestDigest: r.digest, Capability: "fs.read", Args: fmt.Sprintf(`{"path":%q}`, r.file),
		Deed: deed.Free("agent", fmt.Sprint(r.calls)), At: now, ExpiresAt: now + 60, CorrelationID: "item", Agent: "ops"})
	r.must(err)
	if a.State != wire.Succeeded {
		r.t.Fatalf("got %+v", a)
	}
	r.sealed(rows)
}

func (r *rig) sealed(rows int64) {
	r.t.Helper()
	testrig.Until(r.t, "the checkpoint", func() bool {
		o, _, err := r.registry.client.Checkpoint(r.t.Context(), r.target, 0, "")
		r.must(err)
		return o.At.Rows == rows
	})
}

// round is a look at the device, some time after the last.
func (r *rig) round(after time.Duration) (written bool) {
	r.t.Helper()
	r.now = r.now.Add(after)
	r.must(r.registry.Ready(r.t.Context(), r.d))
	r.must(r.api.Get(r.t.Context(), client.ObjectKeyFromObject(r.d), r.d))
	was := r.d.ResourceVersion
	r.registry.audit(r.t.Context(), r.d)
	r.must(r.api.Get(r.t.Context(), client.ObjectKeyFromObject(r.d), r.d))
	return r.d.ResourceVersion != was
}

// keep what was brought, as the manager does.
func (r *rig) keep() {
	r.t.Helper()
	o, err := checkpoint.OpenReply([]byte(r.d.Status.Audit.Reply), "web1", public(3))
	r.must(err)
	var k checkpoint.Checkpoint
	if s := r.d.Status.AuditKept; s != nil {
		k.Rows = s.Rows
		k.Root, err = checkpoint.ParseRoot(s.Root)
		r.must(err)
	}
	r.must(checkpoint.Judge(k, o))
	r.d.Status.AuditKept = &v1alpha1.KeptAudit{Rows: o.At.Rows, Root: o.At.Root.String(), At: metav1.Now()}
	r.must(r.api.Status().Update(r.t.Context(), r.d))
}

func (r *rig) lag(want float64) {
	r.t.Helper()
	if got := testutil.ToFloat64(r.registry.lag.gauge.WithLabelValues("web1")); got != want {
		r.t.Errorf("the lag is %v s, want %v", got, want)
	}
}

// Checkpoints are brought as they come, with a proof from what the manager has kept, at most one a minute, and none at rest.
func TestBringsCheckpoints(t *testing.T) {
	r := newRig(t)
	r.sealed(1)
	if !r.round(0) || r.d.Status.Audit.Rows != 1 {
		t.Fatalf("got %+v", r.d.Status.Audit)
	}
	r.act(3)
	if r.round(30 * time.Second) {
		t.Error("written twice within a minute")
	}
	r.lag(30)
	// The manager is away: what comes is brought, from where it stands.
	if !r.round(30*time.Second) || r.d.Status.Audit.Rows != 3 || r.d.Status.Audit.Since != 0 {
		t.Errorf("got %+v", r.d.Status.Audit)
	}
	r.lag(60)
	r.keep()
	r.round(time.Minute)
	r.lag(0)
	for range 3 {
		if r.round(time.Minute) {
			t.Error("written at rest")
		}
	}
	r.act(5)
	if !r.round(time.Minute) || r.d.Status.Audit.Since != 3 || r.d.Status.Audit.Rows != 5 {
		t.Errorf("got %+v", r.d.Status.Audit)
	}
	r.keep() // which judges the proof
	if c := r.d.Status.Audit.Checkpoint; len(c) == 0 {
		t.Error("no checkpoint beside the reply")
	}
	r.registry.lag.forget("web1")
	if n, err := testutil.GatherAndCount(r.metrics, "nisse_broker_device_audit_lag_seconds"); err != nil || n != 0 {
		t.Errorf("%d devices have a lag that are gone, %v", n, err)
	}
}

// What accuses the device is brought like anything else.
func TestBringsWhatAccuses(t *testing.T) {
	r := newRig(t)
	r.act(3)
	r.d.Status.AuditKept = &v1alpha1.KeptAudit{Rows: 50, Root: checkpoint.Checkpoint{}.Root.String(), At: metav1.Now()}
	r.must(r.api.Status().Update(t.Context(), r.d))
	if !r.round(0) || r.d.Status.Audit.Since != 50 {
		t.Fatalf("got %+v", r.d.Status.Audit)
	}
	o, err := checkpoint.OpenReply([]byte(r.d.Status.Audit.Reply), "web1", public(3))
	r.must(err)
	var f *checkpoint.Finding
	if err := checkpoint.Judge(checkpoint.Checkpoint{Rows: 50}, o); !errors.As(err, &f) || f.Trouble != checkpoint.Truncated {
		t.Errorf("got %v", err)
	}
	for range 3 {
		if r.round(time.Minute) {
			t.Error("written again")
		}
	}
}

// Rows are replicated as they are sealed, and not when they do not extend what was kept; what is replicated outlives the machine.
func TestReplicates(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	store, err := replica.Open(dir, 1<<20)
	r.must(err)
	r.registry.Replicate(store)
	rows := func() int {
		var b strings.Builder
		if err := replica.Show(dir, "web1", &b); err != nil {
			return 0
		}
		return strings.Count(b.String(), "\n")
	}
	lag := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(r.registry.replicas.behind.WithLabelValues("web1")); got != want {
			t.Errorf("%v rows are behind, want %v", got, want)
		}
	}
	r.act(3)
	r.round(0)
	r.keep()
	if rows() != 3 {
		t.Fatalf("%d rows", rows())
	}
	lag(0)
	r.act(5)
	r.round(time.Minute)
	r.keep()
	if rows() != 5 {
		t.Errorf("%d rows", rows())
	}
	// The manager has kept what the device does not have.
	was := r.d.Status.AuditKept.DeepCopy()
	r.d.Status.AuditKept.Root = checkpoint.Checkpoint{}.Root.String()
	r.must(r.api.Status().Update(t.Context(), r.d))
	r.act(7)
	r.round(time.Minute)
	if rows() != 5 {
		t.Errorf("%d rows: what does not extend what was kept was taken", rows())
	}
	r.d.Status.AuditKept = was
	r.must(r.api.Status().Update(t.Context(), r.d))
	r.round(time.Minute)
	if rows() != 7 {
		t.Errorf("%d rows", rows())
	}
	// The disk is gone.
	r.must(os.RemoveAll(dir))
	r.act(9)
	r.round(time.Minute)
	lag(2)
	if n := testutil.ToFloat64(r.registry.replicas.failures.WithLabelValues("web1", "Unwritable")); n != 1 {
		t.Errorf("%v failures are counted", n)
	}
	r.registry.replicas.forget("web1")
	for _, name := range []string{"nisse_broker_device_audit_replica_rows", "nisse_broker_device_audit_replica_lag_rows", "nisse_broker_device_audit_replica_failures_total"} {
		if n, err := testutil.GatherAndCount(r.metrics, name); err != nil || n != 0 {
			t.Errorf("%s: %d of a device that is gone, %v", name, n, err)
		}
	}
}

// The root key's order is brought to the device, the first checkpoint of the new line to the manager at once, and a refusal to people.
func TestBringsOrders(t *testing.T) {
	r := newRig(t)
	r.act(3)
	r.round(0)
	r.keep()
	online := func() string {
		return meta.FindStatusCondition(r.d.Status.Conditions, v1alpha1.ConditionOnline).Message
	}
	order := func(k ed25519.PrivateKey, line, rows int64) {
		t.Helper()
		s := r.d.Status.AuditKept
		text, err := checkpoint.Anchor{Device: "web1", Line: line, Rows: rows, Root: s.Root, Trouble: checkpoint.Truncated, Row: 4, At: line}.Sign(k)
		r.must(err)
		r.d.Spec.AuditAnchor = text
		r.must(r.api.Update(t.Context(), r.d))
		r.round(time.Second)
	}
	order(key(5), 1000, 3)
	if m := online(); !strings.Contains(m, "not anchored anew") || !strings.Contains(m, "signature") {
		t.Errorf("by another key: %q", m)
	}
	order(key(4), 1000, 3)
	if m := online(); !strings.Contains(m, "AuditIntact") {
		t.Errorf("of an audit in order: %q", m)
	}
	order(key(4), 1000, 50)
	if m := online(); m != "The device answers." {
		t.Errorf("obeyed: %q", m)
	}
	o, err := checkpoint.OpenReply([]byte(r.d.Status.Audit.Reply), "web1", public(3))
	r.must(err)
	if o.At.Line != 1000 || o.At.Rows != 1 || r.d.Status.Audit.Rows != 1 {
		t.Errorf("got %+v", r.d.Status.Audit)
	}
	for range 3 {
		if r.round(time.Minute) {
			t.Error("written at rest")
		}
	}
}
