package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/manifest"
)

// verdict on an authentic request for this device.
type verdict struct {
	// stored answer of a deed that is done; nothing else matters then.
	stored []byte
	// running: the deed has begun and its outcome is not written.
	running bool
	// reason not to run it; empty to run it.
	reason  wire.Reason
	message string
	// allowed by the manifest, when reason is empty.
	allowed manifest.Verdict
	// approved by the statement.
	approved
}

// approved is what a statement says of a step.
type approved struct {
	approvers []string
	// executable that the call was resolved to, as its SHA-256 in hex; empty when nothing was.
	executable string
}

var deedID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// judge a request in the order of wire's reasons, up to WrongDeed. The lock is held. An error means that the deed table cannot be read.
func (s *Server) judge(ctx context.Context, r wire.Request, h *manifests.Held, now int64) (verdict, error) {
	known, found, err := deeds.Get(ctx, s.Store.DB(), r.Deed)
	if err != nil {
		return verdict{}, err
	}
	callHash := r.Call().Hash()
	if running, ok := s.running[r.Deed]; ok {
		known, found = deeds.Deed{CallHash: running.callHash, State: wire.Running}, true
	}
	if found && known.CallHash == callHash {
		if known.State == wire.Running {
			return verdict{running: true}, nil
		}
		return verdict{stored: known.Answer}, nil
	}
	allowed, by, reason, message := s.weigh(r, h, now, found)
	if reason == "" && r.Approved != nil {
		if message, err = s.outOfTurn(ctx, *r.Approved, h); err != nil {
			return verdict{}, err
		}
		if message != "" {
			reason = wire.NotCovered
		}
	}
	return verdict{allowed: allowed, approved: by, reason: reason, message: message}, nil
}

// weigh everything about a request but whether its deed is done. h is the manifest that it names, nil when that is
// not held; taken tells that its ID was used for another call.
func (s *Server) weigh(r wire.Request, h *manifests.Held, now int64, taken bool) (allowed manifest.Verdict, by approved, reason wire.Reason, message string) {
	refuse := func(reason wire.Reason, format string, args ...any) (manifest.Verdict, approved, wire.Reason, string) {
		return manifest.Verdict{}, approved{}, reason, fmt.Sprintf(format, args...)
	}
	if h == nil || s.manifests.Get(h.Digest) == nil {
		return refuse(wire.OtherManifest, "this device does not hold manifest %s, which the call was made for", r.ManifestDigest)
	}
	if reason, message := s.manifests.Dead(h, s.clock.Known(now)); reason != "" {
		return refuse(reason, "%s", message)
	}
	allowed, err := h.Check(r.Capability, r.Args)
	reads := err == nil && allowed.Approval == manifest.None && r.Approved == nil
	// Reads go on while the clock is not believed: what they could repeat is in the deed table.
	if s.clock.Believed(now) || !reads {
		if reason, message := s.clock.Judge(now, r.At, r.ExpiresAt); reason != "" {
			return refuse(reason, "%s", message)
		}
	}
	switch {
	case taken:
		return refuse(wire.DeedConflict, "the deed's ID was used for another call")
	case err != nil && !errors.Is(err, manifest.ErrNotAllowed):
		return refuse(wire.BadArgs, "%s", err)
	case err != nil:
		return refuse(wire.NotAllowed, "%s", err)
	case r.Approved == nil && allowed.Approval != manifest.None:
		return refuse(wire.NeedsApproval, "%s needs a person's approval here", r.Capability)
	case r.Approved == nil && !deedID.MatchString(r.Deed):
		return refuse(wire.WrongDeed, "the deed's ID must be 64 hex digits")
	case r.Approved == nil:
		return allowed, approved{}, "", ""
	}
	a := r.Approved
	statement, err := approval.Verify(a.Statement, h.ApprovalKeys())
	if err != nil {
		return refuse(wire.NotCovered, "the statement of approval is not trusted: %s", err)
	}
	if statement.GateUID != a.GateUID {
		return refuse(wire.NotCovered, "the statement is of gate %s, the call of gate %s", statement.GateUID, a.GateUID)
	}
	if err := statement.Covers(a.Step, a.Attempt, r.Call(), s.clock.Latest(now)); err != nil {
		return refuse(wire.NotCovered, "%s", err)
	}
	if allowed.Signature == manifest.PersonSignature {
		consent, err := statement.Consented(a.Signature, h.PersonKeys())
		if err == nil {
			err = consent.Ended(s.clock.Latest(now))
		}
		if err != nil {
			return refuse(wire.NeedsSignature, "the manifest demands the own signature of a person (%s) for this, whatever the cluster says: %s; to give one: kubectl nisse approve <gate> --key <file>",
				names(h.Keys.Persons), err)
		}
	}
	if r.Deed != deed.Approved(a.GateUID, a.Step, a.Attempt) {
		return refuse(wire.WrongDeed, "the deed's ID is not that of attempt %d at step %d of gate %s", a.Attempt, a.Step, a.GateUID)
	}
	return allowed, approved{approvers: statement.Approvers, executable: statement.Executable(a.Step)}, "", ""
}

// names of the people whose keys a manifest holds.
func names(persons map[string][]string) string {
	return strings.Join(slices.Sorted(maps.Keys(persons)), ", ")
}

// outOfTurn tells why a step may not run now, as far as this device can know: the statement approved calls in an order, each to succeed
// once. Steps on other devices it cannot see; an Unknown one before it is a person's decision that was made elsewhere.
func (s *Server) outOfTurn(ctx context.Context, a wire.Approved, h *manifests.Held) (string, error) {
	statement, err := approval.Verify(a.Statement, h.ApprovalKeys())
	if err != nil {
		return "", err // weigh has verified it
	}
	for n, attempts := range statement.Attempts {
		step := int32(n) + 1
		states, err := s.attempts(ctx, a.GateUID, step, attempts)
		if err != nil {
			return "", err
		}
		done := slices.Contains(states, wire.Succeeded) || slices.Contains(states, wire.Unknown)
		switch {
		case len(states) == 0:
		case slices.Contains(states, wire.Running):
			return fmt.Sprintf("step %d is still running", step), nil
		case step < a.Step && !done:
			return fmt.Sprintf("step %d before it did not succeed", step), nil
		case step == a.Step && done:
			return fmt.Sprintf("step %d has run in another attempt", step), nil
		case step > a.Step:
			return fmt.Sprintf("step %d after it has begun already", step), nil
		}
	}
	return "", nil
}

// mostAttempts of a step that are looked for.
const mostAttempts = 16

// attempts at a step that this device has seen.
func (s *Server) attempts(ctx context.Context, gate string, step, most int32) ([]wire.State, error) {
	var states []wire.State
	for attempt := int32(1); attempt <= min(most, mostAttempts); attempt++ {
		d, found, err := deeds.Get(ctx, s.Store.DB(), deed.Approved(gate, step, attempt))
		if err != nil {
			return nil, err
		}
		if found {
			states = append(states, d.State)
		}
	}
	return states, nil
}

// rowOf a request, as far as the request says.
func rowOf(r wire.Request) chain.Row {
	row := chain.Row{Deed: r.Deed, Agent: r.Agent, CorrelationID: r.CorrelationID, Capability: r.Capability, Args: r.Args, CallHash: r.Call().Hash()}
	if r.Approved != nil {
		row.Gate, row.Step, row.Attempt = r.Approved.GateUID, r.Approved.Step, r.Approved.Attempt
	}
	return row
}
