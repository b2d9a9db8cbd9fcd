package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

// What is asked for and stopped in one breath never begins: the item is made with the stop in it.
func TestStopSaidBeforeTheItemExists(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cut, mend func(*rig)
		inThread  bool
	}{
		"the gateway is down":                {cut: func(r *rig) { r.halt() }, mend: func(r *rig) { r.start() }},
		"the gateway is down, in the thread": {cut: func(r *rig) { r.halt() }, mend: func(r *rig) { r.start() }, inThread: true},
		"the API server is away": {
			cut: func(r *rig) { r.away.Store(true) },
			mend: func(r *rig) {
				r.wait("both are taken in", func(context.Context) error { return r.tookIn(2) })
				r.away.Store(false)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			r.stored.Store(0)
			tc.cut(r)
			asked := r.say(r.lucas, "nginx", "")
			thread := id.EventID("")
			if tc.inThread {
				thread = asked
			}
			r.say(r.anna, "stop", thread)
			tc.mend(r)
			item := r.item(1)
			if item.Spec.Stop == nil || item.Spec.Stop.By != "anna" || item.Generation != 1 {
				t.Errorf("the item was made with stop %+v, and is of generation %d", item.Spec.Stop, item.Generation)
			}
			e := r.say(r.lucas, "status", "")
			r.hear(r.ops, `"nginx": stopped; how to go on is about to be asked`, e, "")
			if n := r.said("Nothing is running"); n != 0 {
				t.Errorf("%d times it was said that nothing runs", n)
			}
		})
	}
}

// The one that people know of is over and the next has begun, or is about to: what is said to the room stops that one.
func TestStopBetweenTwoItems(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.say(r.lucas, "nginx", "")
	first := r.item(1)
	r.work(first, v1alpha1.WorkItemWorking)
	next := r.say(r.lucas, "and php", "")
	second := r.item(2)
	r.hear(r.ops, "^Queued behind", next, next)
	// As the manager leaves it for a moment: the agent still names the one that has ended.
	r.must(r.admin.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	first.Status.State = v1alpha1.WorkItemClosed
	r.must(r.admin.Status().Update(t.Context(), first))
	r.say(r.anna, "stop", "")
	r.stopped(second, "anna")

	r.work(second, v1alpha1.WorkItemClosed)
	e := r.say(r.anna, "stop", "")
	r.hear(r.ops, `^Nothing is running\.$`, e, "")
	e = r.say(r.anna, "stop", next)
	r.hear(r.ops, `^"and php" is over; nothing runs for it any more\.$`, e, next)
	r.must(r.admin.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	if first.Spec.Stop != nil {
		t.Errorf("the one that was over was stopped: %+v", first.Spec.Stop)
	}
}

// The gateway's cache does not show what the API server has: an item of its own making, or one made by hand. A stop finds it all the
// same, and words in its thread reach it.
func TestStopOfWhatTheCacheDoesNotShow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ inThread, byHand bool }{
		"said to the room":     {},
		"said in its thread":   {inThread: true},
		"an item made by hand": {byHand: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			pod := r.pod("ops")
			r.blind.put()
			var asked id.EventID
			if tc.byHand {
				r.create(&v1alpha1.WorkItem{ObjectMeta: r.meta("by-hand"), Spec: v1alpha1.WorkItemSpec{
					Agent: "ops", Title: "nginx", Request: "nginx", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes},
				}})
			} else {
				asked = r.say(r.lucas, "nginx", "")
				r.letters(pod, 1) // its row is done: nothing in the inbox tells of it any more
			}
			thread := id.EventID("")
			if tc.inThread {
				thread = asked
				r.say(r.lucas, "on web1", thread)
				want := []doors.Message{{Seq: 2, WorkItem: r.item(1).Name, Person: "lucas", MayInstruct: true, Text: "on web1"}}
				if diff := cmp.Diff(want, r.letters(pod, 2)[1:], cmpopts.IgnoreFields(doors.Message{}, "At", "ID")); diff != "" {
					t.Errorf("letters -want +got:\n%s", diff)
				}
			}
			r.say(r.lucas, "stop", thread)
			r.stopped(r.item(1), "lucas")
			r.blind.drop()
			if n := len(r.items()); n != 1 {
				t.Errorf("%d items", n)
			}
		})
	}
}

// An item that was made and deleted before the cache ever showed it takes no words: nobody would read them.
func TestWordsForWhatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	pod := r.pod("ops")
	r.blind.put()
	asked := r.say(r.lucas, "nginx", "")
	r.letters(pod, 1)
	r.must(r.admin.Delete(r.t.Context(), r.item(1)))
	const gone = "the work of this thread is gone"
	more := r.say(r.lucas, "on web1", asked)
	r.hear(r.ops, gone, more, asked)
	r.blind.drop()
	// From now on it is not expected any more, and the next work finds its way.
	r.say(r.lucas, "postgres", "")
	if got := r.letters(pod, 2); got[1].Text != "postgres" {
		t.Errorf("letters %+v", got)
	}
}

// An answer that comes right behind the stop, before its question stands in the room, is not taken for new work.
func TestAnswerBeforeItsQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	e := r.say(r.lucas, "status", "")
	r.hear(r.ops, `"nginx": is being worked on`, e, "")
	r.halt()
	r.say(r.lucas, "stop", "")
	early := r.say(r.lucas, "replan use the other disk", "")
	r.start()
	const notYet = `^"nginx" is stopped, and its question is not in the room yet: this changed nothing\. Answer when it is\.$`
	r.hear(r.gates, notYet, early, "")
	r.stopped(item, "lucas")
	r.work(item, v1alpha1.WorkItemAwaitingInput)
	early = r.say(r.lucas, "abandon it, please", asked)
	r.hear(r.gates, notYet, early, asked)
	if items := r.items(); len(items) != 1 {
		t.Errorf("%d items", len(items))
	}
	g := r.haltGate(item, 1)
	r.hear(r.gates, `abandon$`, early, asked)
	r.say(r.lucas, "replan use the other disk", "")
	if a := r.approval(g); a.Spec.Answer != v1alpha1.AnswerReplan || a.Spec.Text != "use the other disk" {
		t.Errorf("%+v", a.Spec)
	}
}

// The question of a stop ended before anybody answered: the room says so, and another stop asks anew.
func TestStopAgainAfterTheQuestionEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	r.say(r.lucas, "stop", "")
	r.stopped(item, "lucas")
	first := item.Spec.Stop.ID
	meta.SetStatusCondition(&item.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuestionEnded, Message: "stop again",
	})
	r.must(r.admin.Status().Update(r.t.Context(), item))
	e := r.say(r.lucas, "status", "")
	r.hear(r.ops, "its question has ended: type .stop. to be asked again", e, "")
	e = r.say(r.lucas, "continue", "")
	r.hear(r.gates, "its question has ended: this changed nothing", e, "")
	r.say(r.lucas, "stop", "")
	r.wait("it is stopped anew", func(ctx context.Context) error {
		if err := r.admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
			return err
		}
		if item.Spec.Stop.ID == first {
			return errors.New("the stop is the first")
		}
		return nil
	})
}

// stopped waits until an item is, and by whom.
func (r *rig) stopped(w *v1alpha1.WorkItem, by string) {
	r.t.Helper()
	r.wait(w.Spec.Title+" is stopped", func(ctx context.Context) error {
		if err := r.admin.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		if !w.Stopped() {
			return errors.New("not yet")
		}
		return nil
	})
	if w.Spec.Stop.By != by {
		r.t.Errorf("stopped by %q", w.Spec.Stop.By)
	}
}

// tookIn tells whether the gateway has stored n messages since the test began to count.
func (r *rig) tookIn(n int64) error {
	if got := r.stored.Load(); got < n {
		return fmt.Errorf("%d messages", got)
	}
	return nil
}
