package admission

import (
	"strings"
	"testing"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
)

func resolved(executable, digit string) *api.ResolvedProgram {
	return &api.ResolvedProgram{Executable: executable, SHA256: strings.Repeat(digit, 64), User: "nobody"}
}

// command is a plan of one that was resolved so.
func command(name string, r *api.ResolvedProgram) *api.Plan {
	p := plan(name)
	p.Spec.Steps = []api.PlanStep{{Device: "d", Capability: manifest.Exec, Args: `{"argv":["/usr/bin/df"]}`, ManifestDigest: digest, Resolved: r}}
	return p
}

// Every step says which program it runs if it runs one, whoever submits it.
func TestStepsSayWhichProgramTheyRun(t *testing.T) {
	for name, c := range map[string]struct {
		capability string
		resolved   *api.ResolvedProgram
		ok         bool
	}{
		"a program":          {manifest.Exec, resolved("/usr/bin/df", "0"), true},
		"none":               {manifest.Exec, nil, false},
		"none is needed":     {manifest.FSWrite, nil, true},
		"one too many":       {manifest.FSWrite, resolved("/usr/bin/df", "0"), false},
		"one in a container": {manifest.DockerExec, resolved("/usr/bin/df", "0"), false},
		"somewhere":          {manifest.Exec, resolved("usr/bin/df", "0"), false},
		"nowhere":            {manifest.Exec, resolved("", "0"), false},
		"too far away":       {manifest.Exec, resolved("/"+strings.Repeat("a", 1024), "0"), false},
		"no hash":            {manifest.Exec, resolved("/usr/bin/df", ""), false},
		"half a hash":        {manifest.Exec, &api.ResolvedProgram{Executable: "/usr/bin/df", SHA256: strings.Repeat("0", 32), User: "nobody"}, false},
		"in capitals":        {manifest.Exec, resolved("/usr/bin/df", "A"), false},
		"as nobody named":    {manifest.Exec, &api.ResolvedProgram{Executable: "/usr/bin/df", SHA256: strings.Repeat("0", 64)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := command("program-"+strings.ReplaceAll(name, " ", "-"), c.resolved)
			p.Spec.Steps[0].Capability = c.capability
			if err := as(broker).Create(t.Context(), p); (err == nil) != c.ok {
				t.Errorf("let through: %t, %v", err == nil, err)
			}
		})
	}
}

// The rule of the kind and what the broker resolves are about the same capabilities.
func TestTheRuleIsAboutWhatIsResolved(t *testing.T) {
	for _, c := range manifest.Capabilities() {
		if manifest.Resolves(c) != (c == manifest.Exec) {
			t.Errorf("%s: the rule on PlanStep.resolved has to name it", c)
		}
	}
}
