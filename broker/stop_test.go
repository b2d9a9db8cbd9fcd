package broker

import (
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/faultydevice"
)

// A stop that arrives after the judge looked, while the job is being written, still comes before the signature.
func TestAStopBetweenJudgingAndSigning(t *testing.T) {
	r := newRig(t, options{faults: true})
	p := r.submit("c1", "a")
	g := r.approve(p)
	j := r.pendingJob(p, g)
	r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
	r.broker.dispatcher.Resolve(t.Context(), r.api)
	r.ran(0)
	r.status(r.item, func() { r.item.Status.AnsweredStop = "s1" }) // a person said continue
	r.broker.dispatcher.Resolve(t.Context(), r.api)
	r.ran(1)
	r.jobIs(j, v1alpha1.JobSucceeded)
}

// A stop while the device is told what it lacks, which may take a while, keeps the step from being sent as well.
func TestAStopWhileTheDeviceIsAsked(t *testing.T) {
	for _, tc := range []struct {
		name string
		deaf bool // it said that it knows of no manifest when it was called
	}{{"before it is called", false}, {"between two calls", true}} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			p := r.submit("c1", "a")
			g := r.approve(p)
			j := r.pendingJob(p, g)
			if tc.deaf {
				d := &v1alpha1.Device{ObjectMeta: r.meta("web1")}
				must(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(d), d))
				must(t, r.broker.registry.Ready(t.Context(), d))
			}
			var once sync.Once
			r.device.Set(faultydevice.Fault{Deaf: tc.deaf, Telling: func() {
				once.Do(func() {
					r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
					r.device.Set(faultydevice.Fault{})
				})
			}})
			r.broker.dispatcher.Resolve(t.Context(), r.api)
			r.ran(0)
			if !r.item.Stopped() {
				t.Fatal("nobody said stop: the test proves nothing")
			}
			r.status(r.item, func() { r.item.Status.AnsweredStop = "s1" }) // a person said continue
			r.broker.dispatcher.Resolve(t.Context(), r.api)
			r.ran(1)
			r.jobIs(j, v1alpha1.JobSucceeded)
		})
	}
}

// A machine that was set up anew has the name and another key. It knows nothing of what the one before it was asked, and so proves nothing about it:
// the deed is not sent to it, and nobody says that it never ran.
func TestAMachineThatWasReplaced(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ended time.Duration // since the job's time was over
		want  v1alpha1.JobState
	}{{"when its time is over", time.Minute, ""}, {"long after", 2 * time.Hour, v1alpha1.JobUnknown}} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			p := r.submit("c1", "a")
			g := r.approve(p)
			j := r.jobUntil(p, g, time.Now().Add(-tc.ended))
			another := faultydevice.New(t, "web1", public(r.request), public(r.approver))
			d := &v1alpha1.Device{ObjectMeta: r.meta("web1")}
			r.spec(d, func() {
				d.Spec.URL, d.Spec.PublicKey = another.URL, dsse.EncodeKey(public(another.Key))
			})
			r.broker.dispatcher.Resolve(t.Context(), r.api)
			r.jobIs(j, tc.want)
			if n := another.Approved(); n != 0 {
				t.Errorf("%d deeds ran on the new machine", n)
			}
		})
	}
}

// A job bears the key of the machine that was asked.
func TestAJobNamesItsMachine(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.approve(r.submit("c1", "a"))
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Done, "")
	var all v1alpha1.DeviceJobList
	must(t, r.api.List(t.Context(), &all, client.InNamespace(r.ns)))
	if len(all.Items) != 1 || all.Items[0].Spec.DeviceKey != dsse.EncodeKey(r.target.Key) {
		t.Errorf("got %+v", all.Items)
	}
}
