package loop_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
)

// moody refuses to serve while it is told to.
type moody struct {
	refuses atomic.Pointer[model.Error]
	asked   atomic.Int32
	rig     atomic.Pointer[rig] // woken by every request
}

func (m *moody) Ask(context.Context, model.Request) (model.Answer, error) {
	m.asked.Add(1)
	if r := m.rig.Load(); r != nil {
		r.change(func() {})
	}
	if e := m.refuses.Load(); e != nil {
		return model.Answer{}, e
	}
	return model.Answer{Calls: []model.Call{{ID: "1", Tool: "ask_human", Args: `{"question":"which?"}`}}}, nil
}

func misconfigured(why string) *model.Error {
	return &model.Error{Kind: model.Misconfigured, Err: errors.New(why)}
}

// What keeps the model from serving is reported once, also through a broker that is away, and taken back when it serves: by the process
// that reported it, or by the next.
func TestTroubleWithTheModelIsReported(t *testing.T) {
	no := doors.Trouble{WorkItem: "wi-1", Reason: doors.TroubleModel, Message: "there is no such model"}
	for name, restarts := range map[string]bool{"taken back by the same process": false, "taken back by the next": true} {
		t.Run(name, func(t *testing.T) {
			m := &moody{}
			m.refuses.Store(misconfigured(no.Message))
			r := startWith(t, m)
			r.change(func() { r.untroubled = true })
			r.open("wi-1", "look")
			r.until("people are told", r.hears("I cannot use my model: there is no such model"))
			r.change(func() { r.untroubled = false })
			r.until("it is reported", func() bool { return len(r.troubles) > 0 })
			m.rig.Store(r.rig)
			asked := m.asked.Load()
			r.until("it was tried again, which is no news", func() bool { return m.asked.Load() >= asked+5 })
			if restarts {
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
				m.refuses.Store(nil)
				r.start()
			}
			m.refuses.Store(nil)
			r.until("it is taken back", func() bool { return len(r.troubles) > 1 })
			r.until("the work goes on", r.tooled("ask_human"))
			r.mu.Lock()
			defer r.mu.Unlock()
			if diff := cmp.Diff([]doors.Trouble{no, {WorkItem: "wi-1"}}, r.troubles); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
		})
	}
}

// A report that the broker refuses, because another item is the active one there, is made again while the trouble lasts.
func TestTroubleThatWasRefusedIsReportedAgain(t *testing.T) {
	m := &moody{}
	m.refuses.Store(misconfigured("there is no such model"))
	r := startWith(t, m)
	r.change(func() { r.inactive = true })
	r.open("wi-1", "look")
	m.rig.Store(r.rig)
	r.until("it is refused", func() bool { return r.noReports > 0 })
	r.change(func() { r.inactive = false })
	r.until("it is reported", func() bool { return len(r.troubles) > 0 })
}
