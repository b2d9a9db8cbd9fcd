package dispatch

import (
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
)

// Result of a decision by which nothing runs.
func Result(d judge.Decision) doors.ToolResult {
	if d.Verdict == judge.Repeat || d.Verdict == judge.Attach {
		return FromJob(d.Job)
	}
	r := doors.ToolResult{Status: doors.Refused, Reason: d.Reason, Message: d.Message, Step: d.Step}
	switch d.Verdict {
	case judge.Held:
		r.Status = doors.Halted
	case judge.Wait:
		r.Status = doors.Pending
	default: // refused
	}
	if d.Plan != nil {
		r.Revision = d.Plan.Spec.Revision
		if r.Status == doors.Pending {
			r.Gate = d.Plan.Name // the gate has the plan's name, also before it exists
		}
	}
	return r
}

func refused(reason, message string) doors.ToolResult {
	return doors.ToolResult{Status: doors.Refused, Reason: reason, Message: message}
}

func pending(d judge.Decision, message string) doors.ToolResult {
	r := Result(d)
	r.Status, r.Message = doors.Pending, message
	return r
}

// waiting is the result of a job that has not ended.
func waiting(j *v1alpha1.DeviceJob, message string) doors.ToolResult {
	r := FromJob(j)
	r.Message = message
	return r
}

// FromJob tells what became of a job.
func FromJob(j *v1alpha1.DeviceJob) doors.ToolResult {
	r := doors.ToolResult{Message: j.Status.Message, Gate: j.Spec.Gate.Name, Step: j.Spec.Step, AuditHash: j.Status.AuditHash}
	if j.Status.Result != "" {
		r.Output = json.RawMessage(j.Status.Result)
	}
	switch j.Status.State {
	case v1alpha1.JobSucceeded:
		r.Status = doors.Done
	case v1alpha1.JobFailed:
		r.Status = doors.Failed
	case v1alpha1.JobRefused:
		r.Status, r.Reason = doors.Refused, "DeviceRefused"
	case v1alpha1.JobExpired:
		r.Status, r.Reason = doors.Refused, "Expired"
	case v1alpha1.JobUnknown:
		r.Status, r.Reason = doors.Unknown, string(v1alpha1.HaltOutcomeUnknown)
	default:
		r.Status, r.Message = doors.Pending, "It was asked for and has not ended yet."
	}
	return r
}

// answered is the result of a call that has no job.
func answered(a wire.Answer) doors.ToolResult {
	r := doors.ToolResult{Message: clean(a.Message, 1024), AuditRow: a.AuditRow, AuditHash: clean(a.AuditHash, 64)}
	if out := shrink(a.Result); out != "" {
		r.Output = json.RawMessage(out)
	}
	switch a.State {
	case wire.Succeeded:
		r.Status = doors.Done
	case wire.Failed:
		r.Status = doors.Failed
	case wire.Unknown:
		r.Status, r.Reason = doors.Unknown, string(v1alpha1.HaltOutcomeUnknown)
	case wire.Refused:
		r.Status, r.Reason = doors.Refused, reasonOf(a.Reason)
		if a.Reason == wire.DeedConflict {
			r.Reason, r.Message = judge.CallIDReused, "The call ID was used for another call. Give each call an ID of its own."
		}
	default:
		r.Status, r.Reason = doors.Refused, "NotSeen"
	}
	return r
}

// reasonOf keeps a device that was broken into from putting words of its own where people and metrics expect one of a few.
func reasonOf(r wire.Reason) string {
	switch r {
	case wire.NoManifest, wire.BadSignature, wire.BadVersion, wire.OtherDevice, wire.OtherManifest, wire.ManifestExpired, wire.Revoked, wire.OlderManifest, wire.OlderAnchor, wire.AuditIntact, wire.Expired, wire.NotYet,
		wire.WindowTooLong, wire.DeedConflict, wire.BadArgs, wire.NotAllowed, wire.NeedsSignature, wire.NeedsApproval, wire.NotCovered, wire.WrongDeed, wire.AuditUnwritable, wire.TableFull, wire.PathRefused,
		wire.TargetRefused, wire.Unavailable, wire.Unconfined, wire.ExecutableChanged, wire.Busy:
		return string(r)
	}
	return "Other"
}

func clean(s string, limit int) string { return sanitize.Data(s, limit) }

// nano reads Unix nanoseconds in decimal; nil when they are not.
func nano(s string) *metav1.MicroTime {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	t := metav1.NewMicroTime(time.Unix(0, n))
	return &t
}
