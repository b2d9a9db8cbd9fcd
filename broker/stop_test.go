package broker

import (
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
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
