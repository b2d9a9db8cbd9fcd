// Package names derives the names of objects from what they are about, so that whoever makes one twice makes the same one.
package names

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"nisse.io/nisse/internal/canonical"
)

// WorkItem is the name of the item that begins with an event: wi- and a ULID of the event's time and the hash of where it is.
func WorkItem(at time.Time, room, eventID string) string {
	h := sha256.Sum256([]byte("nisse.io/work-item/v1\x00" + room + "\x00" + eventID))
	var u ulid.ULID
	ms := at.UnixMilli()
	if ms < 0 || uint64(ms) > ulid.MaxTime() {
		ms = 0 // the homeserver's clock is not ours to trust; the hash alone keeps names apart
	}
	_ = u.SetTime(uint64(ms)) // cannot fail: within MaxTime
	_ = u.SetEntropy(h[:10])  // cannot fail: ten bytes
	return "wi-" + strings.ToLower(u.String())
}

// Plan is the name of a revision of a work item.
func Plan(workItem string, revision int32) string {
	return fmt.Sprintf("%s-rev-%d", workItem, revision)
}

// PlanGate is the name of the gate of a plan: the plan's own.
func PlanGate(plan string) string { return plan }

// HaltGate is the name of the gate that asks how a halted item goes on.
func HaltGate(workItem, stopID, haltID string) string {
	return workItem + "-halt-" + canonical.Hex([]byte("nisse.io/halt/v1\x00" + stopID + "\x00" + haltID))[:8]
}

// Approval is the name of the Approval that a chat event becomes.
func Approval(room, eventID string) string {
	return "apr-" + canonical.Hex([]byte("nisse.io/approval/v1\x00" + room + "\x00" + eventID))[:32]
}

// Job is the name of the DeviceJob of a deed.
func Job(deedID string) string { return "job-" + deedID[:40] }

// Manifest is the name of a device's manifest for agents of a privilege: web1-user, web1-elevated.
func Manifest(device, privilege string) string {
	if privilege == "" {
		privilege = "User"
	}
	return device + "-" + strings.ToLower(privilege)
}

// Lease is the name of the Lease that tells when a device proved last to be there.
func Lease(device string) string { return "device-" + device }

// Audit is the name of the ConfigMap that keeps the checkpoints of a device's audit. Neither part has a dot.
func Audit(namespace, device string) string { return "audit." + namespace + "." + device }

// AuditLine is the name of the ConfigMap that keeps those of a line of the audit that has ended.
func AuditLine(namespace, device string, line int64) string {
	return fmt.Sprintf("%s.%d", Audit(namespace, device), line)
}
