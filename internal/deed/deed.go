// Package deed names deeds. A deed is one effect that may happen at most once; its ID is minted from what authorised it, before
// anything is sent, so that everybody who asks for it again asks for the same one.
package deed

import (
	"fmt"

	"nisse.io/nisse/internal/canonical"
)

// Approved is the ID of one attempt at one step of an approved gate.
func Approved(gateUID string, step, attempt int32) string {
	return id("approved", gateUID, fmt.Sprint(step), fmt.Sprint(attempt))
}

// Free is the ID of a call that needs no approval.
func Free(agentUID, callID string) string { return id("free", agentUID, callID) }

func id(parts ...string) string {
	b, err := canonical.Marshal(append([]string{"nisse.io/deed/v1"}, parts...))
	if err != nil {
		// Only invalid UTF-8 can do this, which no caller's identifiers contain: they came through JSON.
		panic("deed: " + err.Error())
	}
	return canonical.Hex(b)
}
