package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/florianl/go-nfqueue"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// patience is how long the first packet of a pod waits until its address is known. The kubelet publishes it a second or
	// two after the container starts, later when many start at once.
	patience = 15 * time.Second
	// held is how many packets may wait. A pod that floods delays others, but opens nothing.
	held = 512
)

// gate holds back what a pod sends before the judge can know whose address that is. The judge lets packets of unknown
// addresses pass, as they could belong to anything, and so a pod that connects in its first second would be under no policy
// at all; the connection would last, because only first packets are judged.
type gate struct {
	mu sync.Mutex
	// pods maps each address to the pods that have it, by UID. For a moment an old pod and its successor may share one.
	pods map[netip.Addr]map[string]bool
	// changed is closed, and replaced, when an address becomes known.
	changed chan struct{}
	slots   chan struct{}
}

func newGate() *gate {
	return &gate{pods: map[netip.Addr]map[string]bool{}, changed: make(chan struct{}), slots: make(chan struct{}, held)}
}

// OnAdd, OnUpdate and OnDelete follow the informer whose store the judge reads: what is known here is known there.
func (g *gate) OnAdd(object any, _ bool) { g.observe(object) }
func (g *gate) OnUpdate(_, object any)   { g.observe(object) }
func (g *gate) OnDelete(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.forget(string(pod.UID))
	}
}

// observe records the addresses of a pod that runs. A pod that has ended keeps its address in its status, but another may get
// it: to count it as known would judge the new one by the old one's policies.
func (g *gate) observe(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.HostNetwork {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(string(pod.UID))
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	for _, ip := range pod.Status.PodIPs {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		if g.pods[address] == nil {
			g.pods[address] = map[string]bool{}
		}
		g.pods[address][string(pod.UID)] = true
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// forget is called with mu held.
func (g *gate) forget(uid string) {
	for address, pods := range g.pods {
		delete(pods, uid)
		if len(pods) == 0 {
			delete(g.pods, address)
		}
	}
}

// known says whether a pod that runs has this address; if not, the channel is closed when that may have changed.
func (g *gate) known(address netip.Addr) (bool, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pods[address] != nil, g.changed
}

// await blocks until the address is known, and says whether that came in time.
func (g *gate) await(ctx context.Context, address netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		known, changed := g.known(address)
		if known {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// run answers the queue that network.sh fills with the first packets that pods send, before routing. An accepted packet goes
// on to the judge's queue.
func (g *gate) run(ctx context.Context, number uint16) error {
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue: number, MaxPacketLen: 64, MaxQueueLen: 1024, Copymode: nfqueue.NfQnlCopyPacket,
		Flags: nfqueue.NfQaCfgFlagGSO, WriteTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return fmt.Errorf("open packet queue %d: %w", number, err)
	}
	defer queue.Close()
	verdict := func(id uint32, verdict int) {
		if err := queue.SetVerdict(id, verdict); err != nil {
			slog.Error("gate: verdict not given, the packet is lost", "error", err)
		}
	}
	handle := func(packet nfqueue.Attribute) int {
		id := *packet.PacketID
		source, ok := sourceOf(packet)
		if !ok {
			verdict(id, nfqueue.NfDrop)
			return 0
		}
		if known, _ := g.known(source); known {
			verdict(id, nfqueue.NfAccept)
			return 0
		}
		select {
		case g.slots <- struct{}{}:
		default:
			verdict(id, nfqueue.NfDrop)
			return 0
		}
		go func() {
			defer func() { <-g.slots }()
			if g.await(ctx, source) {
				verdict(id, nfqueue.NfAccept)
				return
			}
			slog.Warn("gate: no pod is known by this address, its packet is dropped", "source", source)
			verdict(id, nfqueue.NfDrop)
		}()
		return 0
	}
	// A read that times out, or a full buffer, is no reason to stop; what was lost is dropped.
	if err := queue.RegisterWithErrorFunc(ctx, handle, func(error) int { return 0 }); err != nil {
		return fmt.Errorf("read packet queue %d: %w", number, err)
	}
	<-ctx.Done()
	return nil
}

// sourceOf reads the source address of an IPv4 packet; pods of this cluster have no other.
func sourceOf(packet nfqueue.Attribute) (netip.Addr, bool) {
	if packet.Payload == nil || len(*packet.Payload) < 20 || (*packet.Payload)[0]>>4 != 4 {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice((*packet.Payload)[12:16])
}
