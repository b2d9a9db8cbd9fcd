package workitem

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nisse.io/nisse/api/v1alpha1"
)

// What is told of approved steps follows from the jobs of that gate alone.
func TestAccount(t *testing.T) {
	gate := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{UID: "g"}}
	job := func(step, attempt int32, state v1alpha1.JobState) v1alpha1.DeviceJob {
		return v1alpha1.DeviceJob{Spec: v1alpha1.DeviceJobSpec{Gate: v1alpha1.GateRef{UID: "g"}, Step: step, Attempt: attempt}, Status: v1alpha1.DeviceJobStatus{State: state}}
	}
	settled := func(as v1alpha1.Settlement) v1alpha1.DeviceJob {
		j := job(1, 1, v1alpha1.JobUnknown)
		j.Status.Settled = &v1alpha1.JobSettlement{As: as}
		return j
	}
	another := job(1, 1, v1alpha1.JobSucceeded)
	another.Spec.Gate.UID = "h"
	for name, tc := range map[string]struct {
		steps  int
		jobs   []v1alpha1.DeviceJob
		want   string
		undone string
	}{
		"all":                     {2, []v1alpha1.DeviceJob{job(1, 1, v1alpha1.JobSucceeded), job(2, 1, v1alpha1.JobSucceeded)}, "2/2", ""},
		"none":                    {1, nil, "0/1", "step 1 was not run"},
		"another gate's":          {1, []v1alpha1.DeviceJob{another}, "0/1", "step 1 was not run"},
		"the latest attempt":      {1, []v1alpha1.DeviceJob{job(1, 2, v1alpha1.JobSucceeded), job(1, 1, v1alpha1.JobFailed)}, "1/1", ""},
		"in the midst":            {1, []v1alpha1.DeviceJob{job(1, 1, "")}, "0/1", "step 1 had not ended"},
		"each its way":            {5, []v1alpha1.DeviceJob{job(1, 1, v1alpha1.JobUnknown), job(2, 1, v1alpha1.JobFailed), job(3, 1, v1alpha1.JobRefused), job(4, 1, v1alpha1.JobExpired)}, "0/5", "step 5 was not run; step 2 failed; step 3 was refused by the device; step 4 had not begun when its approval ended; step 1 ended in a way that nobody can prove"},
		"several":                 {4, []v1alpha1.DeviceJob{job(1, 1, v1alpha1.JobSucceeded)}, "1/4", "each of steps 2, 3, 4 was not run"},
		"settled as done":         {1, []v1alpha1.DeviceJob{settled(v1alpha1.SettledSucceeded)}, "1/1", ""},
		"settled as failed":       {1, []v1alpha1.DeviceJob{settled(v1alpha1.SettledFailed)}, "0/1", "step 1 failed"},
		"gone on without a word":  {1, []v1alpha1.DeviceJob{settled("")}, "0/1", "step 1 ended in a way that nobody can prove"},
		"as many as there may be": {50, nil, "0/50", ""},
	} {
		t.Run(name, func(t *testing.T) {
			steps, undone := account(&v1alpha1.Plan{Spec: v1alpha1.PlanSpec{Revision: 3, Steps: make([]v1alpha1.PlanStep, tc.steps)}}, gate, tc.jobs)
			if steps != tc.want || len(undone) > 1024 {
				t.Errorf("%s, want %s; %d bytes", steps, tc.want, len(undone))
			}
			if want := "Of rev-3, which was approved, " + tc.undone + "."; tc.undone != "" && undone != want || tc.undone == "" && strings.HasPrefix(name, "all") && undone != "" {
				t.Errorf("%q, want %q", undone, want)
			}
		})
	}
}

// The revision that counts is the highest one that a person approved for this very item.
func TestApprovedLast(t *testing.T) {
	item := &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{UID: "i"}}
	plan := func(revision int32, uid string) v1alpha1.Plan {
		return v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: v1alpha1.PlanSpec{Revision: revision}}
	}
	gate := func(plan v1alpha1.Plan, kind v1alpha1.GateKind, outcome v1alpha1.GateOutcome, item string) v1alpha1.Gate {
		return v1alpha1.Gate{Spec: v1alpha1.GateSpec{Kind: kind, Revision: plan.Spec.Revision, Subject: v1alpha1.GateSubject{UID: string(plan.UID)}, WorkItem: v1alpha1.ObjectRef{UID: item}}, Status: v1alpha1.GateStatus{Outcome: outcome}}
	}
	one, two, three := plan(1, "p1"), plan(2, "p2"), plan(3, "p3")
	plans := []v1alpha1.Plan{three, two, one}
	approved, rejected := v1alpha1.GateApproved, v1alpha1.GateRejected
	for name, tc := range map[string]struct {
		gates []v1alpha1.Gate
		want  int32
	}{
		"nothing":              {nil, 0},
		"the later":            {[]v1alpha1.Gate{gate(one, v1alpha1.GatePlan, approved, "i"), gate(two, v1alpha1.GateCall, approved, "i")}, 2},
		"the later, first":     {[]v1alpha1.Gate{gate(two, v1alpha1.GatePlan, approved, "i"), gate(one, v1alpha1.GatePlan, approved, "i")}, 2},
		"a rejected one after": {[]v1alpha1.Gate{gate(one, v1alpha1.GatePlan, approved, "i"), gate(three, v1alpha1.GatePlan, rejected, "i")}, 1},
		"a halt's":             {[]v1alpha1.Gate{gate(one, v1alpha1.GateHalt, approved, "i")}, 0},
		"a namesake's":         {[]v1alpha1.Gate{gate(one, v1alpha1.GatePlan, approved, "j")}, 0},
		"a plan that is gone":  {[]v1alpha1.Gate{gate(plan(4, "p4"), v1alpha1.GatePlan, approved, "i")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var got int32
			if _, p := approvedLast(item, tc.gates, plans); p != nil {
				got = p.Spec.Revision
			}
			if got != tc.want {
				t.Errorf("rev-%d, want rev-%d", got, tc.want)
			}
		})
	}
}
