package deviceaudit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/mod/sumdb/tlog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// device keeps the tree of an audit, and says what the test wants.
type device struct {
	t     *testing.T
	key   ed25519.PrivateKey
	nodes []tlog.Hash
	rows  int64
	line  int64
	now   int64
	// roots that it has signed, and so may be known.
	roots map[int64]string
}

func (d *device) ReadHashes(at []int64) (all []tlog.Hash, err error) {
	for _, i := range at {
		all = append(all, d.nodes[i])
	}
	return all, nil
}

// grow by rows that bear a word.
func (d *device) grow(n int64, word string) {
	d.t.Helper()
	for range n {
		leaf, err := checkpoint.Leaf(canonical.Hex([]byte(fmt.Sprint(word, d.rows))))
		d.must(err)
		nodes, err := tlog.StoredHashesForRecordHash(d.rows, leaf, d)
		d.must(err)
		d.nodes, d.rows = append(d.nodes, nodes...), d.rows+1
	}
}

// cut the newest rows off.
func (d *device) cut(to int64) {
	d.nodes, d.rows = d.nodes[:tlog.StoredHashCount(to)], to
}

func (d *device) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// says is the reply to who has kept since rows.
func (d *device) says(since int64, finding *checkpoint.Finding) (checkpoint.Opened, string) {
	d.t.Helper()
	d.now++
	r := checkpoint.Reply{Device: "web1", Since: since, Known: d.roots[since], Finding: finding, Now: d.now}
	if d.rows > 0 {
		root, err := tlog.TreeHash(d.rows, d)
		d.must(err)
		r.Checkpoint, err = checkpoint.Checkpoint{Line: d.line, Rows: d.rows, Root: root}.Sign("web1", d.key)
		d.must(err)
		if d.roots == nil {
			d.roots = map[int64]string{}
		}
		if d.roots[d.rows] == "" {
			d.roots[d.rows] = root.String()
		}
	}
	if since > 0 && since < d.rows {
		proof, err := tlog.ProveTree(d.rows, since, d)
		d.must(err)
		for _, h := range proof {
			r.Proof = append(r.Proof, h.String())
		}
	}
	env, err := r.Sign(d.key)
	d.must(err)
	o, err := checkpoint.OpenReply(env, "web1", d.key.Public().(ed25519.PublicKey))
	d.must(err)
	return o, string(env)
}

type rig struct {
	*device
	admin  client.Client
	r      *Reconciler
	d      *v1alpha1.Device
	events *events.FakeRecorder
	writes int
	now    time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cfg, admin := apitest.Start(t)
	r := &rig{device: &device{t: t, key: key(3), now: 1000}, admin: admin, events: events.NewFakeRecorder(10), now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	watched, err := client.NewWithWatch(cfg, client.Options{Scheme: apitest.Scheme()})
	r.must(err)
	counted := interceptor.NewClient(watched, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			r.writes++
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			r.writes++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			r.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r.r = &Reconciler{Client: counted, Live: admin, System: apitest.Namespace(t, admin), Events: r.events, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return r.now }}
	public := dsse.EncodeKey(r.key.Public().(ed25519.PublicKey))
	r.d = &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: apitest.Namespace(t, admin), Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:1", PublicKey: public, RootKey: public}}
	r.must(admin.Create(t.Context(), r.d))
	return r
}

// bring a reply as the broker does.
func (r *rig) bring(o checkpoint.Opened, reply string) {
	r.t.Helper()
	r.must(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(r.d), r.d))
	a := &v1alpha1.DeviceAudit{Rows: o.At.Rows, Since: o.Since, At: metav1.NewTime(r.now), Checkpoint: o.Checkpoint, Reply: reply}
	if o.At.Rows > 0 {
		a.Root = o.At.Root.String()
	}
	if o.Finding != nil {
		a.Finding = sanitize.Line(o.Finding.Error(), 1000)
	}
	r.d.Status.Audit = a
	r.must(r.admin.Status().Update(r.t.Context(), r.d))
}

// pass of the controller, and another that must write nothing.
func (r *rig) pass() ctrl.Result {
	r.t.Helper()
	res, err := r.r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.d)})
	r.must(err)
	before := r.writes
	_, err = r.r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.d)})
	r.must(err)
	if r.writes != before {
		r.t.Errorf("%d writes at rest", r.writes-before)
	}
	r.must(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(r.d), r.d))
	return res
}

// want a verdict and what is kept.
func (r *rig) want(status metav1.ConditionStatus, reason string, kept int64) {
	r.t.Helper()
	c := meta.FindStatusCondition(r.d.Status.Conditions, v1alpha1.ConditionAuditIntact)
	if c == nil || c.Status != status || c.Reason != reason {
		r.t.Errorf("got %+v, want %s (%s)", c, status, reason)
	}
	have := int64(0)
	if r.d.Status.AuditKept != nil {
		have = r.d.Status.AuditKept.Rows
	}
	if have != kept {
		r.t.Errorf("%d rows are kept, want %d", have, kept)
	}
}

func (r *rig) kept() *corev1.ConfigMap {
	r.t.Helper()
	var m corev1.ConfigMap
	r.must(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: r.r.System, Name: names.Audit(r.d.Namespace, "web1")}, &m))
	return &m
}

func (r *rig) deleteKept() {
	r.t.Helper()
	r.must(r.admin.Delete(r.t.Context(), r.kept()))
}

func (r *rig) warned(n int) {
	r.t.Helper()
	if len(r.events.Events) != n {
		r.t.Errorf("%d events, want %d", len(r.events.Events), n)
	}
}

// begun is a rig whose device has ten rows that are kept.
func begun(t *testing.T) *rig {
	r := newRig(t)
	r.pass()
	if r.writes != 0 {
		t.Errorf("nothing came and there are %d writes", r.writes)
	}
	r.grow(10, "row")
	r.bring(r.says(0, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 10)
	return r
}

func TestKeepsWhatExtends(t *testing.T) {
	r := begun(t)
	if r.writes != 2 {
		t.Errorf("%d writes for a checkpoint, want the ConfigMap and the status", r.writes)
	}
	r.grow(5, "row")
	r.bring(r.says(0, nil)) // by a broker that has not read the status yet
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 10)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 15)
	if m := r.kept(); len(m.Data) != 2 || !strings.Contains(m.Data["0000000000000000015"], "nisse.io/device/web1\\n15\\n") {
		t.Errorf("kept: %v", m.Data)
	}
	r.warned(0)
}

func TestKeepsTheNewest(t *testing.T) {
	r := begun(t)
	for range most + 2 {
		since := r.rows
		r.grow(1, "row")
		r.bring(r.says(since, nil))
		_, err := r.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.d)})
		r.must(err)
	}
	m := r.kept()
	if _, newest := m.Data[fmt.Sprintf("%019d", r.rows)]; len(m.Data) != most || !newest {
		t.Errorf("%d are kept, the newest among them: %v", len(m.Data), newest)
	}
}

// However full of old checkpoints it is, what comes is kept, and above all a finding.
func TestKeepsWhatComesInAFullConfigMap(t *testing.T) {
	for _, c := range []struct {
		name   string
		does   func(r *rig)
		status metav1.ConditionStatus
		reason string
		rows   int64
	}{
		{"a finding", func(r *rig) { r.cut(7) }, metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 10},
		{"a checkpoint", func(r *rig) { r.grow(2, "row") }, metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := begun(t)
			m := r.kept()
			each := (1<<20 - len(m.Data[checkpoint.Key(10)])) / 9
			for n := range int64(9) {
				m.Data[checkpoint.Key(n+1)] = strings.Repeat("x", each)
			}
			r.must(r.admin.Update(t.Context(), m))
			c.does(r)
			r.bring(r.says(10, nil))
			r.pass()
			r.want(c.status, c.reason, c.rows)
			m = r.kept()
			if m.Data[checkpoint.Key(1)] != "" || m.Data[checkpoint.Key(9)] == "" || m.Data[checkpoint.Key(10)] == "" {
				t.Errorf("kept: %v", slices.Sorted(maps.Keys(m.Data)))
			}
		})
	}
}

// Lines that the device has not signed would be kept for ever, and could be many.
func TestNotesWithOthersLinesProveNothing(t *testing.T) {
	r := begun(t)
	r.grow(1, "row")
	o, _ := r.says(10, nil)
	o.Checkpoint += "\u2014 " + strings.Repeat("<", 500) + " AAAAAAA=\n"
	reply, err := o.Sign(r.key)
	r.must(err)
	r.bring(o, string(reply))
	r.pass()
	r.want(metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, 10)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 11)
}

// What a device has signed against itself ends the keeping, for good; nothing that the broker brings afterwards takes that back.
func TestRefusesWhatDoesNotExtend(t *testing.T) {
	for _, c := range []struct {
		name   string
		does   func(r *rig) (checkpoint.Opened, string)
		reason string
		row    string
	}{
		{"rows cut off", func(r *rig) (checkpoint.Opened, string) { r.cut(7); return r.says(10, nil) }, v1alpha1.ReasonAuditTruncated, "Row 8:"},
		{"all rows cut off", func(r *rig) (checkpoint.Opened, string) { r.cut(0); return r.says(10, nil) }, v1alpha1.ReasonAuditTruncated, "Row 1:"},
		{"cut off and written on", func(r *rig) (checkpoint.Opened, string) { r.cut(7); r.grow(8, "forged"); return r.says(10, nil) }, v1alpha1.ReasonAuditForked, "Row 10:"},
		{"written anew, as long", func(r *rig) (checkpoint.Opened, string) { r.cut(7); r.grow(3, "forged"); return r.says(10, nil) }, v1alpha1.ReasonAuditForked, "Row 10:"},
		{"the device says so", func(r *rig) (checkpoint.Opened, string) {
			return r.says(10, &checkpoint.Finding{Trouble: checkpoint.Edited, Row: 4, Detail: "x"})
		}, v1alpha1.ReasonAuditEdited, "Row 4:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := begun(t)
			o, reply := c.does(r)
			r.bring(o, reply)
			if res := r.pass(); res.RequeueAfter != recheck {
				t.Errorf("looked at again after %s", res.RequeueAfter)
			}
			r.want(metav1.ConditionFalse, c.reason, 10)
			if m := meta.FindStatusCondition(r.d.Status.Conditions, v1alpha1.ConditionAuditIntact).Message; !strings.HasPrefix(m, c.row) {
				t.Errorf("message %q, want it to begin with %q", m, c.row)
			}
			if m := r.kept(); !strings.Contains(m.Data[checkpoint.KeyBroken], `"trouble":"`+c.reason) || len(m.Data) != 2 {
				t.Errorf("kept: %v", m.Data)
			}
			r.warned(1)
			// All is well again, as it seems.
			r.nodes, r.rows = nil, 0
			r.grow(12, "row")
			r.bring(r.says(10, nil))
			r.pass()
			r.want(metav1.ConditionFalse, c.reason, 10)
			r.warned(1)
		})
	}
}

// A stolen broker can keep silent. It can neither bend what is kept, nor raise an alarm by what is old.
func TestBelievesTheDeviceAlone(t *testing.T) {
	r := begun(t)
	_, old := r.says(10, nil)
	fewer := &device{t: t, key: r.key, now: 500}
	fewer.grow(4, "row")
	o, played := fewer.says(10, nil)
	r.bring(o, played)
	r.pass()
	r.want(metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, 10)

	forger := &device{t: t, key: key(4), now: 5000}
	forger.grow(20, "forged")
	o, forged := forger.says(10, nil)
	r.bring(o, forged)
	r.pass()
	r.want(metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, 10)

	r.bring(o, "no envelope")
	r.pass()
	r.want(metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, 10)

	silent := o
	silent.Finding = nil
	r.bring(silent, "") // by a broker to which the device gives none
	r.pass()
	r.want(metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, 10)

	o.At.Rows, o.Since = 99, 0 // what is written beside the reply counts for nothing
	r.bring(o, old)
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 10)
	r.warned(0)
}

// A device's clock that was ahead and is put back hides nothing: what it says against itself counts at once, and not when the time has come.
func TestAClockThatIsPutBackHidesNothing(t *testing.T) {
	r := begun(t)
	r.now = r.now.Add(time.Hour)
	r.device.now += 365 * 86400
	r.grow(5, "row")
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 15)
	r.device.now -= 365 * 86400
	r.cut(12)
	r.bring(r.says(15, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 15)
	r.warned(1)
}

// Nor is what a device said while its clock was ahead ever news: a broker could keep it and play it when that time has come.
func TestAReplyFromTheFutureIsNoNews(t *testing.T) {
	r := begun(t)
	r.device.now += 365 * 86400
	o, stored := r.says(10, nil) // ten rows
	r.device.now -= 365 * 86400
	r.grow(5, "row")
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 15)
	r.now = r.now.AddDate(2, 0, 0)
	r.bring(o, stored)
	r.pass()
	r.want(metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, 15)
	r.warned(0)
}

// What a hostile device says of its audit makes no labels and fills no object.
func TestFindingsAreBounded(t *testing.T) {
	r := begun(t)
	r.bring(r.says(10, &checkpoint.Finding{Trouble: "Eaten by a mouse", Row: -7, Detail: strings.Repeat("x ", 5000)}))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditForked, 10)
	if b, err := checkpoint.ReadBroken(r.kept().Data); err != nil || b == nil || b.Trouble != checkpoint.Forked || b.Row != 0 || len(b.Detail) > 1000 {
		t.Errorf("kept: %+v, %v", b, err)
	}
	if n := testutil.CollectAndCount(findings); n > 5 {
		t.Errorf("%d troubles are counted", n)
	}
}

// The manager stops between what it keeps and what it says of it.
func TestStopsInBetween(t *testing.T) {
	r := begun(t)
	r.grow(2, "row")
	o, reply := r.says(10, nil)
	r.bring(o, reply)
	k, err := read(t.Context(), r.admin, r.r.System, r.d.Namespace, "web1")
	r.must(err)
	r.must(k.keep(t.Context(), r.admin, r.r.System, r.d.Namespace, "web1", o, r.now))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 12)
	if m := r.kept(); len(m.Data) != 2 {
		t.Errorf("kept: %v", m.Data)
	}
}

// order of a root key, as kubectl nisse audit reanchor puts it into the Device.
func (r *rig) order(root ed25519.PrivateKey, line int64, change ...func(*checkpoint.Anchor)) {
	r.t.Helper()
	k := v1alpha1.KeptAudit{Root: checkpoint.Checkpoint{}.Root.String()}
	if r.d.Status.AuditKept != nil {
		k = *r.d.Status.AuditKept
	}
	a := checkpoint.Anchor{Device: "web1", Line: line, Before: k.Line, Rows: k.Rows, Root: k.Root, Trouble: checkpoint.Truncated, Row: 8, Reason: "disk restored", At: line}
	for _, c := range change {
		c(&a)
	}
	order, err := a.Sign(root)
	r.must(err)
	r.d.Spec.AuditAnchor = order
	r.must(r.admin.Update(r.t.Context(), r.d))
}

// anew begins a line on the device.
func (r *rig) anew(line int64) {
	r.line, r.nodes, r.rows = line, nil, 0
	r.grow(2, "anew")
}

func (r *rig) old(line int64) map[string]string {
	r.t.Helper()
	var m corev1.ConfigMap
	r.must(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: r.r.System, Name: names.AuditLine(r.d.Namespace, "web1", line)}, &m))
	return m.Data
}

// A line that the root key has ordered is kept from its first checkpoint on, and what was kept of the one before stays, its finding too.
func TestAnchored(t *testing.T) {
	r := begun(t)
	r.cut(7)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 10)
	before := r.kept().Data
	r.order(r.key, 1000)
	r.anew(1000)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
	if r.d.Status.AuditKept.Line != 1000 || len(r.kept().Data) != 2 || r.kept().Data[checkpoint.KeyAnchor] != r.d.Spec.AuditAnchor {
		t.Errorf("kept: %+v, %v", r.d.Status.AuditKept, r.kept().Data)
	}
	if d := cmp.Diff(before, r.old(0)); d != "" {
		t.Errorf("of the line before: %s", d)
	}
	// It goes on, and what breaks it is found.
	r.grow(3, "anew")
	r.bring(r.says(2, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 5)
	if m := meta.FindStatusCondition(r.d.Status.Conditions, v1alpha1.ConditionAuditIntact).Message; !strings.Contains(m, "disk restored") {
		t.Errorf("it says %q", m)
	}
	r.roots = map[int64]string{5: r.d.Status.AuditKept.Root}
	r.cut(3)
	r.bring(r.says(5, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 5)
	// The order that was carried out does not count again.
	r.anew(1001)
	r.bring(r.says(5, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 5)
	r.order(r.key, 1001)
	r.bring(r.says(5, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
	if len(r.old(0)) != len(before) || len(r.old(1000)) != 4 {
		t.Errorf("of the lines before: %v, %v", r.old(0), r.old(1000))
	}
}

// A line that nobody ordered is the device's own, and a fault.
func TestLinesThatNobodyOrdered(t *testing.T) {
	for name, order := range map[string]func(r *rig){
		"no order":           func(*rig) {},
		"by another key":     func(r *rig) { r.order(key(4), 1000) },
		"for another device": func(r *rig) { r.order(r.key, 1000, func(a *checkpoint.Anchor) { a.Device = "web2" }) },
		"for another line":   func(r *rig) { r.order(r.key, 999) },
		"after other rows":   func(r *rig) { r.order(r.key, 1000, func(a *checkpoint.Anchor) { a.Rows = 9 }) },
		"after another root": func(r *rig) {
			r.order(r.key, 1000, func(a *checkpoint.Anchor) { a.Root = checkpoint.Checkpoint{}.Root.String() })
		},
		"after an older line": func(r *rig) { r.order(r.key, 1000, func(a *checkpoint.Anchor) { a.Before = 1 }) },
		"no order but a text": func(r *rig) { r.d.Spec.AuditAnchor = "{}"; r.must(r.admin.Update(t.Context(), r.d)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := begun(t)
			order(r)
			r.anew(1000)
			r.bring(r.says(10, nil))
			r.pass()
			r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditForked, 10)
			r.warned(1)
			var none corev1.ConfigMap
			if err := r.admin.Get(t.Context(), client.ObjectKey{Namespace: r.r.System, Name: names.AuditLine(r.d.Namespace, "web1", 0)}, &none); err == nil {
				t.Error("the line that is kept was put aside")
			}
		})
	}
}

// The manager stops between putting a line aside and beginning the next.
func TestStopsWhileItAnchors(t *testing.T) {
	r := begun(t)
	r.cut(7)
	r.bring(r.says(10, nil))
	r.pass()
	before := r.kept().Data
	r.must(r.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.r.System, Name: names.AuditLine(r.d.Namespace, "web1", 0)}, Data: before}))
	r.order(r.key, 1000)
	r.anew(1000)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
	if d := cmp.Diff(before, r.old(0)); d != "" {
		t.Errorf("of the line before: %s", d)
	}
}
