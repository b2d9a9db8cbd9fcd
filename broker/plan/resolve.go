package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
)

// Resolver asks a device what calls would run.
type Resolver interface {
	Resolve(ctx context.Context, d *v1alpha1.Device, m devices.Signed, calls []wire.AskedCall) ([]wire.ResolvedCall, error)
	// Away says for people that a device cannot be used now.
	Away(name string, err error) string
}

// question to one device: its calls, and which steps each stands for.
type question struct {
	calls []wire.AskedCall
	steps [][]int
}

// questions that steps leave open, by device. The same call is asked about once, and a device without a program to resolve not at all.
func questions(steps []v1alpha1.PlanStep) map[string]*question {
	all := map[string]*question{}
	for i, s := range steps {
		if !manifest.Resolves(s.Capability) {
			continue
		}
		q := all[s.Device]
		if q == nil {
			q = &question{}
			all[s.Device] = q
		}
		c := wire.AskedCall{Capability: s.Capability, Args: s.Args}
		n := slices.Index(q.calls, c)
		if n < 0 {
			n = len(q.calls)
			q.calls, q.steps = append(q.calls, c), append(q.steps, nil)
		}
		q.steps[n] = append(q.steps[n], i)
	}
	return all
}

// resolve fills in which programs the steps run, each device by one question. What nobody can tell a person before they decide is not
// put to them: a device that is away or says no refuses the plan.
func (s *Submitter) resolve(ctx context.Context, steps []v1alpha1.PlanStep, at map[string]place, asked map[string]*question) (*doors.ToolResult, error) {
	order := slices.Sorted(maps.Keys(asked))
	answers, errs := make([][]wire.ResolvedCall, len(order)), make([]error, len(order))
	var all errgroup.Group
	all.SetLimit(devicesAtOnce)
	for i, name := range order {
		all.Go(func() error {
			p := at[name]
			signed := devices.Signed{Name: names.Manifest(name, string(p.allowed.Privilege)), Digest: p.allowed.Digest, Envelope: p.allowed.Envelope}
			answers[i], errs[i] = s.Devices.Resolve(ctx, p.world.Device, signed, asked[name].calls)
			return nil
		})
	}
	_ = all.Wait() // each device's error is looked at by itself
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask devices what a plan would run: %w", err)
	}
	var first *doors.ToolResult
	for i, name := range order {
		q := asked[name]
		if err := errs[i]; err != nil {
			first = earlier(first, s.unresolved(name, q.steps[0][0], err))
			continue
		}
		for n, got := range answers[i] {
			program, why := read(got)
			for _, step := range q.steps[n] {
				steps[step].Resolved = program
			}
			if why != "" {
				first = earlier(first, stepRefusal(q.steps[n][0], judge.NotResolved, fmt.Sprintf("%s would not run this: %s.", name, why)))
			}
		}
	}
	return first, nil
}

// devicesAtOnce are asked for one plan.
const devicesAtOnce = 8

// earlier of two refusals, by their steps.
func earlier(a, b *doors.ToolResult) *doors.ToolResult {
	if a == nil || b.Step < a.Step {
		return b
	}
	return a
}

// unresolved tells why a device has not said what a plan would run there.
func (s *Submitter) unresolved(device string, step int, err error) *doors.ToolResult {
	const shown = " A plan is shown to people only with the programs that it would run."
	no := devices.Refusal(err)
	switch {
	case errors.Is(err, devices.ErrManifest):
		return stepRefusal(step, judge.ManifestRefused, s.Devices.Away(device, err)+shown)
	case no != nil && no.Reason != wire.NoManifest && no.Reason != wire.BadSignature:
		return stepRefusal(step, judge.NotResolved, fmt.Sprintf("%s does not say what it would run: %s.%s", device, sanitize.Line(no.Error(), 600), shown))
	}
	return stepRefusal(step, judge.DeviceAway, s.Devices.Away(device, err)+shown)
}

var sha256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Bounds of what is stored, as the kind has them.
const (
	maxExecutable = 1024
	maxUser       = 64
)

// read what a device says of a call that runs a program, or why that is none.
func read(c wire.ResolvedCall) (*v1alpha1.ResolvedProgram, string) {
	switch {
	case c.Reason != "":
		return nil, fmt.Sprintf("%s: %s", sanitize.Line(string(c.Reason), 64), strings.TrimSuffix(sanitize.Line(c.Message, 600), "."))
	case !sha256.MatchString(c.SHA256) || !path.IsAbs(c.Executable) || path.Clean(c.Executable) != c.Executable || c.User == "":
		return nil, "it does not say properly which program that is"
	case len([]rune(c.Executable)) > maxExecutable || len([]rune(c.User)) > maxUser:
		return nil, "the name of the program, or of its user, is too long to be shown"
	}
	return &v1alpha1.ResolvedProgram{Executable: c.Executable, SHA256: c.SHA256, User: c.User}, ""
}
