// Package approval holds what a decision is about, to the byte: the preimage that a gate's digest covers, the hash of one call,
// and the statement by which the manager tells a device what was approved. The manager writes them, the broker and the device
// check them; nobody else has an opinion.
package approval

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/dsse"
)

// Call is one literal call on one device.
type Call struct {
	Device         string `json:"device"`
	ManifestDigest string `json:"manifestDigest"`
	Capability     string `json:"capability"`
	// Args in canonical JSON. It is hashed as a string, so its bytes are bound, not its meaning.
	Args string `json:"args"`
}

// Hash of the call, in hex.
func (c Call) Hash() string {
	b, err := canonical.Marshal(struct {
		Domain string `json:"domain"`
		Call
	}{"nisse.io/call/v1", c})
	if err != nil {
		// Strings alone: only invalid UTF-8 could fail, which JSON input cannot contain. A hash nobody can meet is the safe answer.
		return "invalid:" + err.Error()
	}
	return canonical.Hex(b)
}

// Step of a preimage: a call and what was settled about it.
type Step struct {
	Call
	// Checks that must hold before and after, each in canonical JSON.
	Checks []string `json:"checks"`
	// Attempts allowed; 1 unless the plan says more.
	Attempts int32 `json:"attempts"`
	// Resolved is the Program that the device resolved the call to, in canonical JSON; empty where it runs none. The manifest binds what
	// else a call runs with: its user, its environment, what it may reach.
	Resolved string `json:"resolved"`
}

// Program that a call was resolved to.
type Program struct {
	// Executable is the file, symlinks followed.
	Executable string `json:"executable"`
	// SHA256 of its bytes, in hex.
	SHA256 string `json:"sha256"`
	// User that it runs as.
	User string `json:"user"`
}

// Canonical form of the program, for a Step.
func (p Program) Canonical() string {
	b, err := canonical.Marshal(p)
	if err != nil {
		return "invalid:" + err.Error() // as for Call.Hash
	}
	return string(b)
}

// PlanPreimage is everything that approving a plan approves.
type PlanPreimage struct {
	AgentUID         string `json:"agentUID"`
	WorkItemUID      string `json:"workItemUID"`
	PlanUID          string `json:"planUID"`
	Revision         int32  `json:"revision"`
	ToolSchemaDigest string `json:"toolSchemaDigest"`
	Steps            []Step `json:"steps"`
	WindowSeconds    int32  `json:"windowSeconds"`
}

// Digest of the preimage, as sha256:<hex>.
func (p PlanPreimage) Digest() (string, error) {
	steps := make([]Step, len(p.Steps))
	for i, s := range p.Steps {
		if s.Checks == nil {
			s.Checks = []string{}
		}
		steps[i] = s
	}
	p.Steps = steps
	return canonical.Digest(struct {
		Domain string `json:"domain"`
		PlanPreimage
	}{"nisse.io/gate/plan/v1", p})
}

// HaltPreimage is everything that answering a halt answers.
type HaltPreimage struct {
	AgentUID    string `json:"agentUID"`
	WorkItemUID string `json:"workItemUID"`
	Stop        string `json:"stop"`
	Halt        string `json:"halt"`
	Message     string `json:"message"`
}

// Digest of the preimage, as sha256:<hex>.
func (p HaltPreimage) Digest() (string, error) {
	return canonical.Digest(struct {
		Domain string `json:"domain"`
		HaltPreimage
	}{"nisse.io/gate/halt/v1", p})
}

// Statement says that these calls, in this order, were approved for this gate by these people, until then.
type Statement struct {
	V       int    `json:"v"`
	GateUID string `json:"gateUID"`
	// Digest of the gate.
	Digest string `json:"digest"`
	// Approvers are the names of the Persons who approved, sorted.
	Approvers []string `json:"approvers"`
	// ExpiresAt in Unix seconds. No call begins at or after it.
	ExpiresAt int64 `json:"expiresAt"`
	// Calls are the hashes of the steps' calls, in order; step n is Calls[n-1].
	Calls []string `json:"calls"`
	// Attempts allowed, step by step.
	Attempts []int32 `json:"attempts"`
	// Resolved is, step by step, the SHA-256 in hex of the executable that a call was resolved to when it was planned; empty where a call
	// runs none. Without it nothing was resolved, and what a program's name leads to counts.
	Resolved []string `json:"resolved,omitempty"`
}

// Version of Statement.
const Version = 1

// ErrNotCovered is wrapped when a statement does not cover a call.
var ErrNotCovered = errors.New("the approval does not cover this call")

// Sign the statement with the approval key.
func (s Statement) Sign(key ed25519.PrivateKey) (string, error) {
	s.V = Version
	b, err := dsse.Sign(key, dsse.TypeStatement, s)
	return string(b), err
}

// Verify an envelope and return the statement in it.
func Verify(envelope string, trusted []ed25519.PublicKey) (Statement, error) {
	var s Statement
	if _, err := dsse.Verify([]byte(envelope), dsse.TypeStatement, trusted, &s); err != nil {
		return Statement{}, err
	}
	if s.V != Version {
		return Statement{}, fmt.Errorf("%w: statement version %d, want %d", dsse.ErrRefused, s.V, Version)
	}
	if s.GateUID == "" || len(s.Calls) == 0 || len(s.Calls) != len(s.Attempts) || len(s.Approvers) == 0 || !slices.IsSorted(s.Approvers) {
		return Statement{}, fmt.Errorf("%w: statement is incomplete", dsse.ErrRefused)
	}
	if len(s.Resolved) > 0 && len(s.Resolved) != len(s.Calls) || slices.ContainsFunc(s.Resolved, func(r string) bool { return r != "" && !hash.MatchString(r) }) {
		return Statement{}, fmt.Errorf("%w: statement resolves no step properly", dsse.ErrRefused)
	}
	return s, nil
}

// hash in hex.
var hash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Executable that a step was resolved to, as its SHA-256 in hex; empty when nothing was. Covers says whether there is such a step.
func (s Statement) Executable(step int32) string {
	if step < 1 || int(step) > len(s.Resolved) {
		return ""
	}
	return s.Resolved[step-1]
}

// Covers tells whether the statement allows this attempt at this step to be this call at this time (Unix seconds).
func (s Statement) Covers(step, attempt int32, call Call, now int64) error {
	switch {
	case now >= s.ExpiresAt:
		return fmt.Errorf("%w: it ended %d s ago", ErrNotCovered, now-s.ExpiresAt)
	case step < 1 || int(step) > len(s.Calls):
		return fmt.Errorf("%w: step %d of %d", ErrNotCovered, step, len(s.Calls))
	case attempt < 1 || attempt > s.Attempts[step-1]:
		return fmt.Errorf("%w: attempt %d of %d at step %d", ErrNotCovered, attempt, s.Attempts[step-1], step)
	case s.Calls[step-1] != call.Hash():
		return fmt.Errorf("%w: step %d is another call", ErrNotCovered, step)
	}
	return nil
}

// Code for high tier: six characters of base32 over digest and gate (RFC 4648 alphabet). It is computed where it is shown and never stored.
func Code(digest, gateUID string) string {
	h := sha256.Sum256([]byte("nisse.io/code/v1\x00" + digest + "\x00" + gateUID))
	return base32.StdEncoding.EncodeToString(h[:])[:6]
}

// CanonicalArgs checks raw arguments (an object) and returns the bytes that will be stored, shown, hashed and run.
func CanonicalArgs(raw json.RawMessage) (string, error) {
	b, err := canonical.JSON(raw)
	if err != nil {
		return "", err
	}
	if b[0] != '{' {
		return "", fmt.Errorf("%w: arguments must be an object", canonical.ErrNotCanonical)
	}
	return string(b), nil
}
