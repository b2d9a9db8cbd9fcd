package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/manifest"
)

func TestQuestions(t *testing.T) {
	step := func(device, capability, args string) v1alpha1.PlanStep {
		return v1alpha1.PlanStep{Device: device, Capability: capability, Args: args}
	}
	df, id := `{"argv":["/usr/bin/df"]}`, `{"argv":["/usr/bin/id"]}`
	got := questions([]v1alpha1.PlanStep{
		step("web1", manifest.FSWrite, `{}`), step("web1", manifest.Exec, df), step("web2", manifest.Exec, df), step("web3", manifest.FSRead, `{}`),
		step("web1", manifest.Exec, id), step("web1", manifest.Exec, df), step("web1", manifest.DockerExec, `{}`),
	})
	want := map[string]*question{
		"web1": {calls: []wire.AskedCall{{Capability: manifest.Exec, Args: df}, {Capability: manifest.Exec, Args: id}}, steps: [][]int{{1, 5}, {4}}},
		"web2": {calls: []wire.AskedCall{{Capability: manifest.Exec, Args: df}}, steps: [][]int{{2}}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(question{})); d != "" {
		t.Error(d)
	}
}

// A plan fits into one question.
func TestAPlanFitsIntoOneQuestion(t *testing.T) {
	if wire.MaxResolve < v1alpha1.PlanMaxSteps {
		t.Errorf("a plan has %d steps, a question %d calls", v1alpha1.PlanMaxSteps, wire.MaxResolve)
	}
}
