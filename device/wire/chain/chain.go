// Package chain is the form of a device's audit: rows in canonical JSON, each bound to the one before it by its hash. It is pure, so
// that whoever holds a copy of the rows can judge them.
package chain

import (
	"fmt"
	"strings"

	"nisse.io/nisse/internal/canonical"
)

// Version of Row.
const Version = 1

// Genesis is what the first row has for Prev.
var Genesis = strings.Repeat("0", 64)

// Kind of a row.
type Kind string

const (
	// Intent is written before a call runs.
	Intent Kind = "intent"
	// Outcome is written after it ran, or at the next start when nobody knows how it ended.
	Outcome Kind = "outcome"
	// Refused is written for an authentic request that did not run.
	Refused Kind = "refused"
	// Manifest is written when the device takes a manifest. Args says which, and who brought it.
	Manifest Kind = "manifest"
	// Revoked is written when manifests are revoked. Args says up to which epoch, and who ordered it.
	Revoked Kind = "revoked"
	// Anchor is the first row of a line that the root key has ordered. Args is the order.
	Anchor Kind = "anchor"
)

// MaxArgs bytes of arguments are kept in a row; ArgsHash covers all of them.
const MaxArgs = 4096

// Row of the audit.
type Row struct {
	V   int   `json:"v"`
	Seq int64 `json:"seq"`
	// At in Unix nanoseconds, a decimal string because it does not fit a canonical integer.
	At            string `json:"at"`
	Kind          Kind   `json:"kind"`
	Deed          string `json:"deed"`
	Agent         string `json:"agent"`
	CorrelationID string `json:"correlationID"`
	Capability    string `json:"capability"`
	// Args as they came, cut to MaxArgs bytes, and ArgsHash of all of them in hex.
	Args     string `json:"args"`
	ArgsHash string `json:"argsHash"`
	CallHash string `json:"callHash"`
	// Gate, Step, Attempt and Approvers of the approval it ran under; empty for calls that need none.
	Gate      string   `json:"gate"`
	Step      int32    `json:"step"`
	Attempt   int32    `json:"attempt"`
	Approvers []string `json:"approvers"`
	// State of an outcome, and Reason when it did not run.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// ResultHash of an outcome's result in hex; empty without one.
	ResultHash string `json:"resultHash"`
	// Prev is the hash of the row before.
	Prev string `json:"prev"`
}

// Encode a row in the form that is stored, handed out and hashed.
func (r Row) Encode() (string, error) {
	r.V = Version
	if r.Approvers == nil {
		r.Approvers = []string{}
	}
	b, err := canonical.Marshal(r)
	return string(b), err
}

// Decode what Encode wrote, and nothing else.
func Decode(body string) (Row, error) {
	if !canonical.Equal([]byte(body)) {
		return Row{}, fmt.Errorf("audit row is not canonical JSON")
	}
	var r Row
	if err := canonical.Strict([]byte(body), &r); err != nil {
		return Row{}, fmt.Errorf("audit row: %w", err)
	}
	if r.V != Version {
		return Row{}, fmt.Errorf("audit row of version %d, want %d", r.V, Version)
	}
	return r, nil
}

// Hash of an encoded row, in hex.
func Hash(body string) string { return canonical.Hex([]byte(body)) }
