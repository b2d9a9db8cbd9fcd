package kubectl

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/test/apitest"
)

func TestJobSettle(t *testing.T) {
	cfg, plain := apitest.Start(t)
	admin, err := client.NewWithWatch(cfg, client.Options{Scheme: plain.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ns := apitest.Namespace(t, admin)
	file := kubeconfig(t, cfg, ns)
	digest := "sha256:" + strings.Repeat("0", 64)
	job := func(name string, state v1alpha1.JobState) *v1alpha1.DeviceJob {
		t.Helper()
		j := &v1alpha1.DeviceJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.DeviceJobSpec{
			Agent: "ops", AgentUID: "a", WorkItem: v1alpha1.ObjectRef{Name: "w", UID: "w"}, Device: "web1", ManifestDigest: digest, Capability: "fs.write", Args: "{}",
			Deed: deed.Free("a", name), Gate: v1alpha1.GateRef{Name: "g", UID: "g"}, Step: 1, Attempt: 1, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour))}}
		if err := admin.Create(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if state != "" {
			j.Status.State = state
			if err := admin.Status().Update(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		return j
	}
	settle := func(args ...string) (string, error) {
		out, _, err := run(t, "", append([]string{"job", "settle", "--kubeconfig", file}, args...)...)
		return out, err
	}
	job("runs", "")
	job("done", v1alpha1.JobSucceeded)
	lost := job("lost", v1alpha1.JobUnknown)
	for says, args := range map[string][]string{
		"not found":                {"none", "--as", "Failed"},
		"want Succeeded or Failed": {"lost", "--as", "Done"},
		"has not ended":            {"runs", "--as", "Failed"},
		"which is proven":          {"done", "--as", "Failed"},
		"no open gate asks":        {"lost", "--as", "Failed"},
		"required flag":            {"lost"},
	} {
		if out, err := settle(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v; want %q", args, out, err, says)
		}
	}
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "w-halt"}, Spec: v1alpha1.GateSpec{
		Agent: "ops", WorkItem: v1alpha1.ObjectRef{Name: "w", UID: "w"}, Kind: v1alpha1.GateHalt, Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectWorkItem, Name: "w", UID: "w"},
		Halt: &v1alpha1.GateHaltRef{Halt: deed.UnknownHalt(lost.Spec.Deed)}, Rule: "r", Digest: digest, Tier: v1alpha1.TierStandard, Title: "t", Message: "m", Required: 1,
		Approvers: []string{"lucas"}, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 60}}
	if err := admin.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}

	// By the name that the API server knows, whatever anybody says.
	out, err := settle("lost", "--as", "Failed", "--reason", "the file is not there", "--wait", "0")
	if err != nil {
		t.Fatalf("%q, %v", out, err)
	}
	var all v1alpha1.ApprovalList
	if err := admin.List(t.Context(), &all, client.InNamespace(ns)); err != nil || len(all.Items) != 1 {
		t.Fatalf("%d approvals, %v", len(all.Items), err)
	}
	a := &all.Items[0]
	if s := a.Spec; s.Gate != (v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}) || s.Digest != digest || s.Decision != v1alpha1.DecisionApprove || s.Answer != v1alpha1.AnswerContinue ||
		s.Settle != v1alpha1.SettledFailed || s.Text != "the file is not there" || s.Channel.Kind != v1alpha1.ChannelKubernetes || !strings.Contains(out, s.Approver+" says that job lost failed") {
		t.Errorf("%+v, %q", s, out)
	}
	if _, err := settle("lost", "--as", "Failed", "--wait", "100ms"); err == nil || !strings.Contains(err.Error(), "nobody has judged") {
		t.Errorf("nobody judged: %v", err)
	}

	// The manager's part: one that does not count, then one that does.
	judge := func(change func(a *v1alpha1.Approval)) chan struct{} { return next(t, admin, ns, change) }
	refused := judge(func(a *v1alpha1.Approval) {
		a.Status.Reason, a.Status.Message = "NotAPerson", "nobody knows you"
		if err := admin.Status().Update(t.Context(), a); err != nil {
			t.Error(err)
		}
	})
	if _, err := settle("lost", "--as", "Failed"); err == nil || !strings.Contains(err.Error(), "NotAPerson") || !strings.Contains(err.Error(), "nobody knows you") {
		t.Errorf("one that does not count: %v", err)
	}
	<-refused
	counts := judge(func(a *v1alpha1.Approval) {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(lost), lost); err != nil {
			t.Error(err)
		}
		lost.Status.Settled = &v1alpha1.JobSettlement{As: v1alpha1.SettledFailed, Answer: v1alpha1.AnswerContinue, Person: "lucas", Approval: a.Name, Gate: a.Spec.Gate, At: a.CreationTimestamp}
		if err := admin.Status().Update(t.Context(), lost); err != nil {
			t.Error(err)
		}
	})
	if out, err := settle("lost", "--as", "Failed"); err != nil || !strings.Contains(out, "job lost: settled as Failed by lucas at ") {
		t.Errorf("%q, %v", out, err)
	}
	<-counts
	if _, err := settle("lost", "--as", "Succeeded"); err == nil || !strings.Contains(err.Error(), "settled as Failed by lucas") {
		t.Errorf("twice: %v", err)
	}
}

// Work that is over asks nobody any more: how its job ended is told to the gate that let it run.
func TestJobSettleWhenTheWorkIsOver(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "w"}, Spec: v1alpha1.WorkItemSpec{Agent: "ops", Title: "t", Request: "do it", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes}}}
	must(admin.Create(t.Context(), w))
	digest := "sha256:" + strings.Repeat("0", 64)
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "w-rev-1"}, Spec: v1alpha1.GateSpec{
		Agent: "ops", WorkItem: v1alpha1.ObjectRef{Name: "w", UID: string(w.UID)}, Kind: v1alpha1.GatePlan, Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: "w-rev-1", UID: "p"},
		Revision: 1, Rule: "r", Digest: digest, Tier: v1alpha1.TierStandard, Title: "t", Message: "m", Required: 1,
		Approvers: []string{"lucas"}, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 60}}
	must(admin.Create(t.Context(), g))
	j := &v1alpha1.DeviceJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lost"}, Spec: v1alpha1.DeviceJobSpec{
		Agent: "ops", AgentUID: "a", WorkItem: g.Spec.WorkItem, Device: "web1", ManifestDigest: digest, Capability: "fs.write", Args: "{}",
		Deed: deed.Free("a", "lost"), Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Step: 1, Attempt: 1, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour))}}
	must(admin.Create(t.Context(), j))
	j.Status.State = v1alpha1.JobUnknown
	must(admin.Status().Update(t.Context(), j))
	settle := func() error {
		_, _, err := run(t, "", "job", "settle", "lost", "--as", "Failed", "--wait", "0", "--kubeconfig", kubeconfig(t, cfg, ns))
		return err
	}
	if err := settle(); err == nil || !strings.Contains(err.Error(), "no open gate asks") {
		t.Errorf("while the work goes on: %v", err)
	}
	w.Spec.Close = true
	must(admin.Update(t.Context(), w))
	must(settle())
	all := listed(t, admin, ns)
	if len(all) != 1 || all[0].Spec.Gate != j.Spec.Gate || all[0].Spec.Digest != digest || all[0].Spec.Settle != v1alpha1.SettledFailed {
		t.Errorf("got %+v", all)
	}
}

func listed(t *testing.T, c client.Client, ns string) []v1alpha1.Approval {
	t.Helper()
	var all v1alpha1.ApprovalList
	if err := c.List(t.Context(), &all, client.InNamespace(ns)); err != nil {
		t.Error(err)
	}
	return all.Items
}

// next does something with the next Approval that comes, as the manager does.
func next(t *testing.T, c client.WithWatch, ns string, change func(*v1alpha1.Approval)) chan struct{} {
	had := len(listed(t, c, ns))
	t.Helper()
	w, err := c.Watch(t.Context(), &v1alpha1.ApprovalList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Stop()
		for e := range w.ResultChan() {
			if a, ok := e.Object.(*v1alpha1.Approval); ok {
				if had--; had < 0 {
					change(a)
					return
				}
			}
		}
	}()
	return done
}
