// Package deed names deeds. A deed is one effect that may happen at most once; its ID is minted from what authorised it, before
// anything is sent, so that everybody who asks for it again asks for the same one.
package deed

import (
	"fmt"
	"strings"

	"nisse.io/nisse/internal/canonical"
)

// Approved is the ID of one attempt at one step of an approved gate.
func Approved(gateUID string, step, attempt int32) string {
	return id("approved", gateUID, fmt.Sprint(step), fmt.Sprint(attempt))
}

// Free is the ID of a call that needs no approval.
func Free(agentUID, callID string) string { return id("free", agentUID, callID) }

// unknownHalt begins the IDs of halts that ask how a deed ended.
const unknownHalt = "unknown-"

// UnknownHalt is the ID of the halt that asks a person how a deed ended: the same however often it is filed.
func UnknownHalt(deed string) string { return unknownHalt + deed[:24] }

// IsUnknownHalt tells whether a halt asks how a deed ended.
func IsUnknownHalt(halt string) bool { return strings.HasPrefix(halt, unknownHalt) }

func id(parts ...string) string {
	b, err := canonical.Marshal(append([]string{"nisse.io/deed/v1"}, parts...))
	if err != nil {
		// Only invalid UTF-8 can do this, which no caller's identifiers contain: they came through JSON.
		panic("deed: " + err.Error())
	}
	return canonical.Hex(b)
}
