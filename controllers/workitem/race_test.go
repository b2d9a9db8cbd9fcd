package workitem

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

// Case 28: the cache does not show the gate that was just opened. Five passes open one.
func TestLaggingCacheOpensOneHaltGate(t *testing.T) {
	b := newBench(t, nil)
	b.stop("s1")
	lag := apitest.Lagging(b.Admin)
	b.r.Client = lag
	for range 5 {
		if _, err := b.try(b.Item); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(time.Second)
	}
	if lag.Created() != 1 || b.gates() != 1 {
		t.Errorf("%d created, %d there", lag.Created(), b.gates())
	}
	if diff := cmp.Diff([]string{"Halted"}, b.Told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

var errAway = errors.New("the API server is away")

// partly fails some reads.
type partly struct {
	client.Client
	fails func(any) bool
}

func (p partly) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if p.fails(o) {
		return errAway
	}
	return p.Client.Get(ctx, k, o, opts...)
}

func (p partly) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if p.fails(l) {
		return errAway
	}
	return p.Client.List(ctx, l, opts...)
}

// Half an answer is never written: when the plans cannot be listed, a replan changes nothing at all.
func TestBrokenPassWritesNothing(t *testing.T) {
	for name, fails := range map[string]func(any) bool{
		"agent": func(o any) bool { _, is := o.(*v1alpha1.Agent); return is },
		"plans": func(o any) bool { _, is := o.(*v1alpha1.PlanList); return is },
		"gates": func(o any) bool { _, is := o.(*v1alpha1.GateList); return is },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.Plan(1, controllertest.Report)
			b.stop("s1")
			b.pass()
			b.answer(b.gate(names.HaltGate("wi-1", "s1", "")), v1alpha1.AnswerReplan, "")
			was := b.Item.DeepCopy()
			broken := partly{b.Admin, fails}
			b.r.Client, b.r.Live = broken, broken
			if _, err := b.try(b.Item); !errors.Is(err, errAway) {
				t.Fatalf("got %v, want a retry", err)
			}
			if diff := cmp.Diff(was.Status, b.Item.Status); diff != "" {
				t.Errorf("a broken pass wrote (-was +is):\n%s", diff)
			}
			b.r.Client, b.r.Live = b.Admin, b.Admin
			b.pass()
			if b.Item.Status.AnsweredStop != "s1" || b.Item.Status.ClosedRevision != 1 {
				t.Errorf("status %+v", b.Item.Status)
			}
		})
	}
}

// Case 30: broker and gateway write their parts at the same moment. Nobody's part is lost, and the loser is quiet.
func TestTwoWritersOnOneStatus(t *testing.T) {
	b := newBench(t, nil)
	b.Plan(1, controllertest.Report)
	b.r.Client = &between{Client: b.Admin, do: func() {
		w := b.Item.DeepCopy()
		p := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"runtime":{"question":{"id":"q1","text":"Which?"}},"conversation":{"answeredQuestion":"q0"}}}`))
		if err := b.Admin.Status().Patch(t.Context(), w, p); err != nil {
			t.Error(err)
		}
	}}
	result, err := b.try(b.Item)
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("got %+v, %v; want a quiet second look", result, err)
	}
	b.r.Client = b.Admin
	b.pass()
	st := b.Item.Status
	if st.State != v1alpha1.WorkItemAwaitingApproval || st.Runtime == nil || st.Runtime.Question.ID != "q1" || st.Conversation.AnsweredQuestion != "q0" {
		t.Errorf("status %+v", st)
	}
}

// between runs something between the pass's reads and its write.
type between struct {
	client.Client
	do func()
}

func (b *between) Status() client.SubResourceWriter { return betweenStatus{b.Client.Status(), b} }

type betweenStatus struct {
	client.SubResourceWriter
	b *between
}

func (s betweenStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if do := s.b.do; do != nil {
		s.b.do = nil
		do()
	}
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}
