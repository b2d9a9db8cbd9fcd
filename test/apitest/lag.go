package apitest

import (
	"context"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lag is a client whose reads do not show what was created through it, as a cache does for a while. Creators must be right all
// the same. Updates show at once.
type Lag struct {
	client.Client
	mu      sync.Mutex
	hidden  map[string]bool
	created int
}

// Lagging wraps c.
func Lagging(c client.Client) *Lag { return &Lag{Client: c, hidden: map[string]bool{}} }

// CatchUp shows everything.
func (l *Lag) CatchUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hidden = map[string]bool{}
}

// Created is how many objects were really created.
func (l *Lag) Created() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.created
}

func key(obj any, namespace, name string) string {
	return reflect.TypeOf(obj).String() + " " + namespace + "/" + name
}

// Create hides what it creates.
func (l *Lag) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := l.Client.Create(ctx, obj, opts...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.created++
	l.hidden[key(obj, obj.GetNamespace(), obj.GetName())] = true
	return nil
}

// Get does not find what is hidden.
func (l *Lag) Get(ctx context.Context, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	l.mu.Lock()
	hidden := l.hidden[key(obj, k.Namespace, k.Name)]
	l.mu.Unlock()
	if hidden {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "lagging"}, k.Name)
	}
	return l.Client.Get(ctx, k, obj, opts...)
}

// List leaves out what is hidden.
func (l *Lag) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := l.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var shown []runtime.Object
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range all {
		if c, ok := o.(client.Object); !ok || !l.hidden[key(o, c.GetNamespace(), c.GetName())] {
			shown = append(shown, o)
		}
	}
	return meta.SetList(list, shown)
}
