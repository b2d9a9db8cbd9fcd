package controllertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ErrAway is what a call on a broken Wire returns.
var ErrAway = errors.New("the API server is away")

// Scene is a controller about to work in a World of its own.
type Scene struct {
	World *World
	// Over are the objects that the controller looks at, in turn.
	Over []client.Object
	// Controller that talks through the wire.
	Controller func(*Wire) reconcile.Reconciler
	// Writes that the controller needs to come to rest.
	Writes int
}

// EachCallFails plays a scene once without a fault, and then once for each call to the API server that was made, with that call
// failing: refused, and for a write also done and its answer lost. Whatever failed, the controller comes to the same end, makes
// nothing twice, tells nothing twice, and then rests.
func EachCallFails(t *testing.T, begin func(*testing.T) Scene) {
	t.Helper()
	s := begin(t)
	wire := s.World.Wire()
	s.play(t, wire)
	want, told := s.World.Snapshot(), s.World.Told()
	if wire.Writes() != s.Writes {
		t.Errorf("%d writes, want %d: %v", wire.Writes(), s.Writes, wire.calls)
	}
	again := func(c call, lost bool) {
		name := c.name + " is refused"
		if lost {
			name = c.name + " is done, and its answer lost"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting for the API server
			s := begin(t)
			wire := s.World.Wire()
			wire.fails, wire.lost = c, lost
			s.play(t, wire)
			if !wire.failed {
				t.Fatalf("the call was not made; these were: %v", wire.calls)
			}
			if diff := cmp.Diff(want, s.World.Snapshot()); diff != "" {
				t.Errorf("it came to another end (-without a fault +with):\n%s", diff)
			}
			if more := beyond(s.World.Told(), told); len(more) > 0 {
				t.Errorf("told besides %v: %v", told, more)
			}
		})
	}
	for _, c := range wire.calls {
		again(c, false)
		if c.writes {
			again(c, true)
		}
	}
}

// play runs passes as the queue would: again after an error, after what was written, and when the pass asks for it at once.
func (s Scene) play(t *testing.T, wire *Wire) {
	t.Helper()
	controller := s.Controller(wire)
	for range 12 {
		restless := false
		for _, o := range s.Over {
			before := wire.Writes()
			result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			if err != nil && !errors.Is(err, ErrAway) {
				t.Fatal(err)
			}
			restless = restless || err != nil || wire.Writes() > before || (result.RequeueAfter > 0 && result.RequeueAfter < time.Second)
		}
		if !restless {
			return
		}
	}
	t.Fatalf("it does not come to rest: %v", wire.calls)
}

// beyond returns what is in got more often than in want.
func beyond(got, want []string) []string {
	left := map[string]int{}
	for _, s := range want {
		left[s]++
	}
	var more []string
	for _, s := range got {
		if left[s]--; left[s] < 0 {
			more = append(more, s)
		}
	}
	return more
}

// Wire is what a controller reaches the API server by. Each call on it has a name, and one of them may fail.
type Wire struct {
	// Cached stands for a cache that does not lag, and Live for the API server itself; both write.
	Cached, Live client.Client

	mu     sync.Mutex
	times  map[string]int
	calls  []call
	fails  call
	lost   bool
	failed bool
	// writes that were done, their answers lost or not.
	writes int
}

// call to the API server.
type call struct {
	name   string
	writes bool
}

func (c call) String() string { return c.name }

// Wire on which nothing fails.
func (w *World) Wire() *Wire {
	w.T.Helper()
	wire := &Wire{times: map[string]int{}}
	wire.Cached, wire.Live = w.Intercepted(wire.named("cached")), w.Intercepted(wire.named("live"))
	return wire
}

// Writes that were done so far.
func (w *Wire) Writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// do a call, or not.
func (w *Wire) do(name string, writes bool, call func() error) error {
	fails := w.begin(name, writes)
	if fails && !w.lost {
		return ErrAway
	}
	err := call()
	if err == nil && writes {
		w.mu.Lock()
		w.writes++
		w.mu.Unlock()
	}
	if fails {
		return ErrAway
	}
	return err
}

func (w *Wire) begin(name string, writes bool) (fails bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[name]++
	c := call{fmt.Sprintf("%s #%d", name, w.times[name]), writes}
	w.calls = append(w.calls, c)
	fails = c == w.fails
	w.failed = w.failed || fails
	return fails
}

func (w *Wire) named(way string) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return w.do(way+" get of "+kind(o)+" "+key.Name, false, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return w.do(way+" list as "+kind(l), false, func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return w.do("create of "+kind(o)+" "+o.GetName(), true, func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.do("delete of "+kind(o)+" "+o.GetName(), true, func() error { return c.Delete(ctx, o, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return w.do("apply of "+strings.TrimSuffix(kind(o), "ApplyConfiguration"), true, func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.do("patch of the "+sub+" of "+kind(o)+" "+o.GetName(), true, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}

func kind(o any) string { return reflect.TypeOf(o).Elem().Name() }
