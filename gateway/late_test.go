package gateway_test

import (
	"context"
	"fmt"
	"testing"

	"nisse.io/nisse/api/v1alpha1"
)

// Words that are said while the work goes on, and that nobody reads any more when their turn comes, do not vanish: who said them hears it,
// and saying them once more begins anew.
func TestWordsToWorkThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	pod := r.pod("ops")
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	r.letters(pod, 1)

	r.away.Store(true)
	before := r.stored.Load()
	r.say(r.lucas, "and php", "") // waits for the API server, and what follows waits for it
	late := r.say(r.lucas, "and hurry", asked)
	r.wait("both are taken in", func(context.Context) error { return r.tookIn(before + 2) })
	r.work(item, v1alpha1.WorkItemClosed)
	r.away.Store(false)
	r.hear(r.ops, `^"nginx" had ended before I read this, so nothing comes of it\. Say it once more, and I begin anew\.$`, late, asked)
	for _, l := range r.letters(pod, 2) {
		if l.Text == "and hurry" {
			t.Errorf("handed on: %+v", l)
		}
	}
	r.say(r.lucas, "and hurry", asked)
	if third := r.item(3); third.Spec.Title != "and hurry" {
		t.Errorf("opened %+v", third.Spec)
	}
}

// Whoever asks an agent how things stand just before it is deleted gets no answer, and the question does not wait for one for ever.
func TestStatusOfAnAgentThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.say(r.lucas, "nginx", "")
	r.item(1)
	r.away.Store(true)
	before := r.stored.Load()
	r.say(r.lucas, "status", "")
	r.wait("it is taken in", func(context.Context) error { return r.tookIn(before + 1) })
	r.must(r.admin.Delete(t.Context(), r.agent("ops", r.ops.String(), r.alias())))
	r.away.Store(false)
	r.wait("nothing waits", func(ctx context.Context) error {
		waiting, err := r.store.Waiting(ctx)
		if err == nil && len(waiting) > 0 {
			err = fmt.Errorf("%d messages wait", len(waiting))
		}
		return err
	})
}
