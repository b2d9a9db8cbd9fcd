package main

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/florianl/go-nfqueue"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var address = netip.MustParseAddr("10.244.0.7")

func pod(uid, ip string, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase}}
	if ip != "" {
		pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	return pod
}

func TestGateKnowsOnlyPodsThatHaveTheAddressNow(t *testing.T) {
	tests := map[string]struct {
		events func(*gate)
		want   bool
	}{
		"nothing is known at first":         {func(*gate) {}, false},
		"a pod without an address":          {func(g *gate) { g.OnAdd(pod("a", "", corev1.PodPending), true) }, false},
		"a pod whose address was published": {func(g *gate) { g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodRunning)) }, true},
		"a pod with init containers":        {func(g *gate) { g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodPending)) }, true},
		"another pod's address":             {func(g *gate) { g.OnUpdate(nil, pod("a", "10.244.0.8", corev1.PodRunning)) }, false},
		"a pod that ended and still names its address": {func(g *gate) {
			g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodRunning))
			g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodSucceeded))
		}, false},
		"a pod that was deleted": {func(g *gate) {
			g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodRunning))
			g.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod("a", "10.244.0.7", corev1.PodRunning)})
		}, false},
		"a successor, while its predecessor goes": {func(g *gate) {
			g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodRunning))
			g.OnUpdate(nil, pod("b", "10.244.0.7", corev1.PodRunning))
			g.OnDelete(pod("a", "10.244.0.7", corev1.PodRunning))
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			test.events(g)
			if known, _ := g.known(address); known != test.want {
				t.Errorf("known is %v, want %v", known, test.want)
			}
		})
	}
}

func TestGateHoldsUntilThePodIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		passed := make(chan bool, 1)
		go func() { passed <- g.await(t.Context(), address) }()
		synctest.Wait()
		g.OnAdd(pod("other", "10.244.0.9", corev1.PodRunning), false)
		synctest.Wait()
		select {
		case <-passed:
			t.Fatal("let go before the address was known")
		default:
		}
		g.OnUpdate(nil, pod("a", "10.244.0.7", corev1.PodRunning))
		if !<-passed {
			t.Error("refused a pod that became known")
		}
	})
}

func TestGateGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if newGate().await(t.Context(), address) {
			t.Error("let an address pass that no pod has")
		}
		if waited := time.Since(began); waited != patience {
			t.Errorf("waited %s, want %s", waited, patience)
		}
	})
}

func TestSourceOf(t *testing.T) {
	header := make([]byte, 20)
	header[0] = 0x45
	copy(header[12:], []byte{10, 244, 0, 7})
	six := make([]byte, 40)
	six[0] = 0x60
	short := header[:19]
	tests := map[string]struct {
		payload *[]byte
		want    bool
	}{
		"IPv4":         {&header, true},
		"IPv6":         {&six, false},
		"cut short":    {&short, false},
		"no content":   {nil, false},
		"empty packet": {new([]byte), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := sourceOf(nfqueue.Attribute{Payload: test.payload})
			if ok != test.want || (ok && got != address) {
				t.Errorf("got %s, %v", got, ok)
			}
		})
	}
}
