package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/internal/doors"
)

// place is a device of a plan, and what it allows.
type place struct {
	world   judge.World
	allowed judge.Allowed
}

// normalise checks every step and brings it into its stored form. The first step that could never run refuses the plan.
func (s *Submitter) normalise(ctx context.Context, w judge.World, raw []Step) ([]v1alpha1.PlanStep, map[string]place, *doors.ToolResult, error) {
	if len(raw) == 0 {
		return nil, nil, refusal("NoSteps", "A plan without steps does nothing and is shown to nobody. Give it the calls you want to make."), nil
	}
	if len(raw) > v1alpha1.PlanMaxSteps {
		return nil, nil, refusal("PlanTooLong", "%d steps; a plan has %d at most. Split the work.", len(raw), v1alpha1.PlanMaxSteps), nil
	}
	known := map[string]place{}
	steps := make([]v1alpha1.PlanStep, len(raw))
	for i, r := range raw {
		bad := func(reason, message string) ([]v1alpha1.PlanStep, map[string]place, *doors.ToolResult, error) {
			return nil, nil, stepRefusal(i, reason, message), nil
		}
		if no := judge.Tool(r.Capability, w.Agent); no != nil {
			return bad(no.Reason, no.Message)
		}
		args, err := tools.Capability(r.Capability, r.Args)
		if errors.Is(err, tools.ErrArguments) {
			return bad(judge.BadArguments, err.Error()+".")
		} else if err != nil {
			return nil, nil, nil, err
		}
		at, seen := known[r.Device]
		if !seen {
			if at.world, err = s.at(ctx, w, r.Device); err != nil {
				return nil, nil, nil, err
			}
		}
		c := judge.Call{Device: r.Device, Capability: r.Capability, Args: string(args)}
		if no := judge.Device(c, at.world); no != nil {
			return bad(no.Reason, no.Message)
		}
		if !seen {
			var no *judge.Decision
			if at.allowed, no = judge.Allows(at.world); no != nil {
				return bad(no.Reason, no.Message)
			}
			known[r.Device] = at
		}
		if _, no := judge.Listed(c, at.allowed); no != nil {
			return bad(no.Reason, no.Message)
		}
		steps[i] = v1alpha1.PlanStep{Device: r.Device, Capability: r.Capability, Args: string(args), ManifestDigest: at.allowed.Digest}
	}
	return steps, known, nil, nil
}

// at a device: the world with it and its manifest. Nobody makes the broker read devices that are not theirs.
func (s *Submitter) at(ctx context.Context, w judge.World, device string) (judge.World, error) {
	if !slices.Contains(w.Agent.Spec.Devices, device) {
		return w, nil
	}
	d := &v1alpha1.Device{}
	switch err := s.Live.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: device}, d); {
	case err == nil:
		w.Device = d
	case !apierrors.IsNotFound(err):
		return w, fmt.Errorf("read device %s: %w", device, err)
	}
	var err error
	w.Manifest, err = s.Live.Manifest(ctx, w.Agent.Spec.Privilege, device)
	return w, err
}
