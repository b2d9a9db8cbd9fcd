package work

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"nisse.io/nisse/api/v1alpha1"
)

// Hub wakes streams when something of their agent changed.
type Hub struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by agent
}

// NewHub returns a hub without listeners.
func NewHub() *Hub { return &Hub{waiting: map[string]map[chan struct{}]bool{}} }

// Listen returns a channel that holds a token whenever something changed since the last one was taken.
func (h *Hub) Listen(agent string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[agent] == nil {
		h.waiting[agent] = map[chan struct{}]bool{}
	}
	h.waiting[agent][c] = true
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting[agent], c)
		if len(h.waiting[agent]) == 0 {
			delete(h.waiting, agent)
		}
	}
}

// Wake the streams of an agent, or of all agents if the name is empty.
func (h *Hub) Wake(agent string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, listeners := range h.waiting {
		if agent != "" && name != agent {
			continue
		}
		for c := range listeners {
			select {
			case c <- struct{}{}:
			default: // a token lies there already
			}
		}
	}
}

// Watch wakes streams by the informers of a cache, and gives the cache the index that the streams read it by.
func (h *Hub) Watch(ctx context.Context, c ctrlcache.Informers) error {
	for _, o := range []client.Object{&v1alpha1.Plan{}, &v1alpha1.Gate{}, &v1alpha1.DeviceJob{}} {
		if err := c.IndexField(ctx, o, v1alpha1.FieldWorkItem, func(o client.Object) []string { return []string{itemOf(o)} }); err != nil {
			return fmt.Errorf("index %T by %s: %w", o, v1alpha1.FieldWorkItem, err)
		}
	}
	for _, o := range []client.Object{&v1alpha1.Agent{}, &v1alpha1.WorkItem{}, &v1alpha1.Plan{}, &v1alpha1.Gate{}, &v1alpha1.DeviceJob{}, &v1alpha1.Device{}} {
		i, err := c.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
		_, err = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.Wake(agentOf(o)) },
			UpdateFunc: func(_, o any) { h.Wake(agentOf(o)) },
			DeleteFunc: func(o any) { h.Wake(agentOf(o)) },
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

// itemOf is the name of the work item that the object is part of.
func itemOf(o client.Object) string {
	switch o := o.(type) {
	case *v1alpha1.Plan:
		return o.Spec.WorkItem.Name
	case *v1alpha1.Gate:
		return o.Spec.WorkItem.Name
	case *v1alpha1.DeviceJob:
		return o.Spec.WorkItem.Name
	}
	return ""
}

// agentOf an object; empty for those that concern any agent.
func agentOf(o any) string {
	switch o := o.(type) {
	case *v1alpha1.Agent:
		return o.Name
	case *v1alpha1.WorkItem:
		return o.Spec.Agent
	case *v1alpha1.Plan:
		return o.Spec.Agent
	case *v1alpha1.Gate:
		return o.Spec.Agent
	case *v1alpha1.DeviceJob:
		return o.Spec.Agent
	}
	return ""
}
