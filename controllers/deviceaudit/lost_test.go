package deviceaudit

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
)

// Who takes the ConfigMap away takes nothing back: of an audit in order the status bears the last checkpoint as well.
func TestLostConfigMap(t *testing.T) {
	r := begun(t)
	r.deleteKept()
	r.cut(7)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 10)

	r = begun(t)
	r.deleteKept()
	r.grow(2, "row")
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 12)
	if m := r.kept(); len(m.Data) != 1 {
		t.Errorf("kept: %v", m.Data)
	}
}

// Who takes away a finding ends no break by it: only the root key has the audit go on, and it still can.
func TestLostFinding(t *testing.T) {
	for _, c := range []struct {
		name   string
		rows   int64 // that the device has left
		reason string
	}{
		{"some rows are left", 7, v1alpha1.ReasonAuditTruncated},
		{"none are left", 0, v1alpha1.ReasonAuditTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := begun(t)
			r.cut(c.rows)
			r.bring(r.says(10, nil))
			r.pass()
			r.want(metav1.ConditionFalse, c.reason, 10)
			row := strings.SplitAfter(meta.FindStatusCondition(r.d.Status.Conditions, v1alpha1.ConditionAuditIntact).Message, ":")[0]

			r.deleteKept()
			r.nodes, r.rows = nil, 0
			r.grow(12, "row") // all is well again, as it seems
			r.bring(r.says(10, nil))
			r.pass()
			r.want(metav1.ConditionFalse, c.reason, 10)
			m := meta.FindStatusCondition(r.d.Status.Conditions, v1alpha1.ConditionAuditIntact).Message
			if !strings.HasPrefix(m, row) || !strings.Contains(m, "taken away") {
				t.Errorf("it says %q, want %q and that it was taken away", m, row)
			}
			if b, err := checkpoint.ReadBroken(r.kept().Data); err != nil || b == nil || string(b.Trouble) != c.reason {
				t.Errorf("kept: %+v, %v", b, err)
			}
			r.warned(2)

			r.order(r.key, 1000)
			r.anew(1000)
			r.bring(r.says(10, nil))
			r.pass()
			r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
		})
	}
}

// Taken away while the order is on its way, it is no loss: the order names what was kept, and the status bears that.
func TestLostFindingThatWasOrderedOver(t *testing.T) {
	r := begun(t)
	r.cut(7)
	r.bring(r.says(10, nil))
	r.pass()
	r.order(r.key, 1000)
	r.anew(1000)
	r.deleteKept()
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
}

// An audit that was broken before anything of it was kept is ended by the root key too.
func TestAnchoredWhenNothingWasKept(t *testing.T) {
	r := newRig(t)
	r.grow(3, "row")
	r.bring(r.says(0, &checkpoint.Finding{Trouble: checkpoint.Edited, Row: 2, Detail: "x"}))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditEdited, 0)
	r.anew(1000)
	r.bring(r.says(0, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditEdited, 0)
	r.order(r.key, 1000)
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
	if len(r.old(0)) != 1 {
		t.Errorf("of the line before: %v", r.old(0))
	}
}

// A machine that is set up anew has another key and an audit of its own: it lacks what was kept, and goes on when the root key says so.
func TestAMachineThatIsSetUpAnew(t *testing.T) {
	r := begun(t)
	r.key, r.nodes, r.rows = key(5), nil, 0
	r.grow(3, "anew")
	r.must(r.admin.Get(t.Context(), client.ObjectKeyFromObject(r.d), r.d))
	r.d.Spec.PublicKey = dsse.EncodeKey(r.key.Public().(ed25519.PublicKey))
	r.must(r.admin.Update(t.Context(), r.d))
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 10)
	r.order(key(3), 1000)
	r.anew(1000)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
}

// What was kept of a device that had the name before is not taken for what is kept of this one, and neither is lost.
func TestALineOfAnotherDeviceOfThatName(t *testing.T) {
	r := begun(t)
	r.cut(7)
	r.bring(r.says(10, nil))
	r.pass()
	before := r.kept().Data
	another := map[string]string{checkpoint.KeyBroken: "of long ago"}
	r.must(r.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.r.System, Name: names.AuditLine(r.d.Namespace, "web1", 0)}, Data: another}))
	r.order(r.key, 1000)
	r.anew(1000)
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
	var all corev1.ConfigMapList
	r.must(r.admin.List(t.Context(), &all, client.InNamespace(r.r.System)))
	found := 0
	for _, m := range all.Items {
		if cmp.Equal(m.Data, before) || cmp.Equal(m.Data, another) {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of both are there", found)
	}
}

// A ConfigMap that comes back older, from a backup of its namespace, makes nobody forget what was kept since.
func TestAnOlderConfigMapComesBack(t *testing.T) {
	r := begun(t)
	before := r.kept().Data
	r.grow(5, "row")
	r.bring(r.says(10, nil))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditExtends, 15)
	m := r.kept()
	m.Data = before
	r.must(r.admin.Update(t.Context(), m))
	r.cut(12)
	r.bring(r.says(15, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 15)
	// Nor what was found.
	m = r.kept()
	m.Data = before
	r.must(r.admin.Update(t.Context(), m))
	r.grow(9, "row")
	r.bring(r.says(15, nil))
	r.pass()
	r.want(metav1.ConditionFalse, v1alpha1.ReasonAuditTruncated, 15)
}

// The manager stops after it has begun a line and before it says so: what the status still tells of the line before is not taken for this one's.
func TestStopsAfterItAnchored(t *testing.T) {
	r := begun(t)
	r.cut(7)
	r.bring(r.says(10, nil))
	r.pass()
	r.order(r.key, 1000)
	r.anew(1000)
	o, reply := r.says(10, nil)
	r.bring(o, reply)
	k, err := read(t.Context(), r.admin, r.r.System, r.d.Namespace, "web1")
	r.must(err)
	r.must(k.begin(t.Context(), r.admin, r.admin, r.r.System, r.d.Namespace, "web1", r.d.Spec.AuditAnchor, o, r.now))
	r.pass()
	r.want(metav1.ConditionTrue, v1alpha1.ReasonAuditAnchored, 2)
}
