// Package judge decides about one call of an agent, from plain data read a moment before. It does nothing and asks nobody; what it
// decides is in the table of its test. Nothing that the agent says about itself is believed: only what the objects say.
package judge

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/sanitize"
)

// AnnotationCallID on a DeviceJob tells by which call of the agent it was asked for.
const AnnotationCallID = "nisse.io/call-id"

// Call as the agent made it.
type Call struct {
	// ID the agent gave it; empty when it gave none.
	ID         string
	Device     string
	Capability string
	// Args in canonical JSON.
	Args string
}

// World is what there is to know about a call. Everything of the cluster in it was read live.
type World struct {
	Now   time.Time
	Agent *v1alpha1.Agent
	// Item that the agent works on; nil when it has none.
	Item *v1alpha1.WorkItem
	// Plans, Gates and Jobs of that item.
	Plans []v1alpha1.Plan
	Gates []v1alpha1.Gate
	Jobs  []v1alpha1.DeviceJob
	// Device that the call names; nil when there is none of that name.
	Device *v1alpha1.Device
	// Manifest of the device for agents of this privilege, as it is kept; nil when there is none.
	Manifest *v1alpha1.DeviceManifest
	// ApprovalKeys whose statements count.
	ApprovalKeys []ed25519.PublicKey
}

// Verdict on a call.
type Verdict string

// Verdicts.
const (
	// Free: it runs on the agent's word.
	Free Verdict = "Free"
	// Run: it is the next step of the plan in force.
	Run Verdict = "Run"
	// Attach: it was asked for before and has not ended; Job tells where it stands.
	Attach Verdict = "Attach"
	// Repeat: it was asked for before and has ended; Job has the answer.
	Repeat Verdict = "Repeat"
	// Wait: it waits for a person, or for the step before it.
	Wait Verdict = "Wait"
	// Ask: it needs approval, and no plan holds it; a person is to be asked about this one call.
	Ask Verdict = "Ask"
	// Refuse: it does not run.
	Refuse Verdict = "Refuse"
	// Held: it does not run, because a stop or a halt holds the item.
	Held Verdict = "Held"
	// Halt: it does not run, and the item is to be halted.
	Halt Verdict = "Halt"
)

// Reasons, in one word, of the verdicts Wait, Refuse and Held.
const (
	ToolNotAllowed    = "ToolNotAllowed"
	DeviceNotAllowed  = "DeviceNotAllowed"
	AgentSuspended    = "AgentSuspended"
	NoWorkItem        = "NoWorkItem"
	OtherWorkItem     = "OtherWorkItem"
	ItemOver          = "ItemOver"
	Stopped           = "Stopped"
	DeviceNotFound    = "DeviceNotFound"
	DeviceAway        = "DeviceAway"
	NoManifest        = "NoManifest"
	ManifestUnsigned  = "ManifestUnsigned"
	ManifestUntrusted = "ManifestUntrusted"
	ManifestInvalid   = "ManifestInvalid"
	ManifestRevoked   = "ManifestRevoked"
	ManifestExpired   = "ManifestExpired"
	ManifestRefused   = "ManifestRefused"
	BadArguments      = "BadArguments"
	NotResolved       = "NotResolved"
	NotListed         = "NotListed"
	NoPlan            = "NoPlan"
	PlanClosed        = "PlanClosed"
	AwaitingApproval  = "AwaitingApproval"
	PlanRejected      = "PlanRejected"
	PlanExpired       = "PlanExpired"
	PlanSuperseded    = "PlanSuperseded"
	GateMismatch      = "GateMismatch"
	DigestMismatch    = "DigestMismatch"
	StatementInvalid  = "StatementInvalid"
	NeedsSignature    = "NeedsSignature"
	ApprovalEnded     = "ApprovalEnded"
	ApproverRevoked   = "ApproverRevoked"
	ManifestChanged   = "ManifestChanged"
	PlanOver          = "PlanOver"
	PlanDone          = "PlanDone"
	StepPending       = "StepPending"
	CallIDReused      = "CallIDReused"
)

// Decision about a call.
type Decision struct {
	Verdict Verdict
	// Reason and Message when it does not run.
	Reason  string
	Message string
	// Plan, Gate, Step and Attempt of a call that needs approval, as far as they are known.
	Plan    *v1alpha1.Plan
	Gate    *v1alpha1.Gate
	Step    int32
	Attempt int32
	// Job of Attach and Repeat.
	Job *v1alpha1.DeviceJob
	// HaltID is the ID of the halt to file; empty when any new one will do.
	HaltID string
	// Allowed is what the device allows, of a call that was judged by it.
	Allowed Allowed
	// TimeoutSeconds that the device gives the call.
	TimeoutSeconds int
}

func refuse(reason, format string, args ...any) *Decision {
	return &Decision{Verdict: Refuse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Judge the call.
func Judge(c Call, w World) Decision {
	if d := Tool(c.Capability, w.Agent); d != nil {
		return *d
	}
	if d := Device(c, w); d != nil {
		return *d
	}
	if d := asked(c, w); d != nil {
		return *d
	}
	if d := Item(w); d != nil {
		return *d
	}
	a, v, d := allowed(c, w)
	if d != nil {
		if answered := ran(c, w); answered != nil {
			return *answered
		}
		return *d
	}
	d = &Decision{Verdict: Free}
	if v.Approval != manifest.None || nextInForce(c, w) {
		d = approved(c, w, a)
	}
	d.Allowed, d.TimeoutSeconds = a, v.TimeoutSeconds
	return *d
}

// allowed tells what the device's manifest says of the call.
func allowed(c Call, w World) (Allowed, manifest.Verdict, *Decision) {
	a, d := Allows(w)
	if d != nil {
		return a, manifest.Verdict{}, d
	}
	v, d := Listed(c, a)
	return a, v, d
}

// Meant refuses a call that means another item than the active one; nil means that it does not.
func Meant(item string, w World) *Decision {
	if item == "" || w.Agent == nil || item == w.Agent.Status.ActiveWorkItem {
		return nil
	}
	return refuse(OtherWorkItem, "Work item %s is not the active one (any more). Nothing was run.", sanitize.Line(item, 63))
}

// Tool tells whether the agent has the tool now; nil means yes.
func Tool(name string, a *v1alpha1.Agent) *Decision {
	switch {
	case a == nil || !a.DeletionTimestamp.IsZero():
		return refuse(ToolNotAllowed, "There is no such agent (any more).")
	case a.Spec.Suspend:
		return refuse(AgentSuspended, "%s is suspended. Nothing runs until spec.suspend is taken away.", a.Name)
	case !slices.Contains(a.Spec.Tools.Allow, name):
		return refuse(ToolNotAllowed, "%s has no tool %s. Its tools are listed in spec.tools.allow.", a.Name, name)
	}
	return nil
}

// Device tells whether the agent may name the device and there is one; nil means yes.
func Device(c Call, w World) *Decision {
	if !slices.Contains(w.Agent.Spec.Devices, c.Device) {
		return refuse(DeviceNotAllowed, "%s may not use device %q. It may use: %s.", w.Agent.Name, c.Device, list(w.Agent.Spec.Devices))
	}
	if w.Device == nil || !w.Device.DeletionTimestamp.IsZero() {
		return refuse(DeviceNotFound, "There is no device %q.", c.Device)
	}
	return nil
}

// Item tells whether anything may run for the item at all; nil means yes.
func Item(w World) *Decision {
	it := w.Item
	switch {
	case it == nil:
		return refuse(NoWorkItem, "There is no work item to do this for. Wait until a person asks for something.")
	case it.Spec.Agent != w.Agent.Name:
		return refuse(NoWorkItem, "Work item %s belongs to another agent.", it.Name)
	case it.Over():
		return refuse(ItemOver, "Work item %s is over; nothing more runs for it.", it.Name)
	case it.Status.Runtime != nil && it.Status.Runtime.Finished != nil:
		return refuse(ItemOver, "Work item %s was finished; nothing more runs for it.", it.Name)
	case it.Stopped():
		return &Decision{Verdict: Held, Reason: Stopped, Message: "A person said stop. Nothing runs until a person answers continue, replan or abandon."}
	case it.Halted():
		h := it.Status.Runtime.Halt
		return &Decision{Verdict: Held, Reason: string(h.Reason), Message: "Halted: " + h.Message + " Nothing runs until a person answers continue, replan or abandon.",
			Step: h.Step}
	}
	return nil
}
