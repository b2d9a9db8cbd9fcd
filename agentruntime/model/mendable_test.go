package model_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
)

// named answers with its name, or fails.
type named struct {
	name  string
	fails bool
	asked *[]string
}

func (n named) Ask(context.Context, model.Request) (model.Answer, error) {
	*n.asked = append(*n.asked, n.name)
	if n.fails {
		return model.Answer{}, &model.Error{Kind: model.Misconfigured, Err: errors.New("no model is called " + n.name)}
	}
	return model.Answer{Text: n.name}, nil
}

func TestMendable(t *testing.T) {
	unreadable := errors.New("no such file")
	for name, tt := range map[string]struct {
		now    string // what the configuration names when the first has been asked
		read   error
		broken []string
		want   []string // the models asked by two requests
		errs   []bool
	}{
		"a model that answers is kept":          {now: "new", want: []string{"old", "old"}, errs: []bool{false, false}},
		"one that fails is replaced by another": {now: "new", broken: []string{"old"}, want: []string{"old", "new", "new"}, errs: []bool{false, false}},
		"nothing else is named":                 {now: "old", broken: []string{"old"}, want: []string{"old", "old"}, errs: []bool{true, true}},
		"the other fails too":                   {now: "new", broken: []string{"old", "new"}, want: []string{"old", "new", "new"}, errs: []bool{true, true}},
		"the configuration cannot be read":      {now: "new", read: unreadable, broken: []string{"old"}, want: []string{"old", "old"}, errs: []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			m := model.NewMendable(doors.Model{Model: "old"},
				func() (doors.Model, error) { return doors.Model{Model: tt.now}, tt.read },
				func(c doors.Model) model.Model {
					n := &named{name: c.Model, asked: &asked}
					for _, b := range tt.broken {
						n.fails = n.fails || b == c.Model
					}
					return n
				})
			var errs []bool
			for range 2 {
				_, err := m.Ask(t.Context(), model.Request{})
				errs = append(errs, err != nil)
			}
			if diff := cmp.Diff(tt.want, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.errs, errs); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
}
