// Package wire is what broker and device say to each other: DSSE envelopes over canonical JSON, one version, every answer signed
// by the device's own key.
//
//	POST /v1/call            body: envelope of Request         answer: envelope of Answer
//	GET  /v1/deeds/{id}      header Nisse-Query: see Query     answer: envelope of Answer (state NotSeen if it never came)
//	GET  /v1/status          header Nisse-Query                answer: envelope of Status
//	GET  /v1/audit?after=N   header Nisse-Query                answer: envelope of AuditPage
//	GET  /v1/checkpoint?since=N&root=R header Nisse-Query      answer: envelope of checkpoint.Reply
//	POST /v1/manifests       body: envelope of a manifest      answer: envelope of Status
//	                         header Nisse-Query
//	POST /v1/revoke          body: envelope of Revocation      answer: envelope of Status
//	                         header Nisse-Query
//	POST /v1/anchor          body: envelope of an order        answer: envelope of Status
//	                         header Nisse-Query
//	POST /v1/resolve         body: envelope of Resolve         answer: envelope of Resolved
//
// A device holds at most one manifest of each privilege, signed by the root key that is pinned on the machine. It believes requests that
// a request key of the very manifest they name has signed; revocations and queries that one of any manifest held has signed, expired and
// revoked ones included, for who may ask about a dead manifest learns what it did. Until it holds one, it believes nobody and answers
// NoManifest. The query that brings a manifest may also be signed by a request key of that manifest itself: the root key vouches for it.
// So who is answered NoManifest, OtherManifest or BadSignature brings the manifest that the device lacks.
//
// A manifest takes the place of one with a lower epoch, and of no other. A revocation kills every manifest up to an epoch for good: what
// has not begun does not begin, a command that runs is killed. No root key is needed to say no; to come back, the root key has to sign
// a manifest of a higher epoch.
//
// Every envelope that can be read is answered with 200 and an envelope; what cannot be read gets 400 and one line of text. A query
// or a change that is refused is answered with an Answer in state Refused that names no deed.
//
// A deed that the device knows, asked for with the same call, is answered from its table before anything else is judged: to call it
// refused because the request has expired meanwhile would say that it did not run.
//
// An Answer names the deed only when the request was authentic. What anybody could have sent gets an Answer without a deed, so that
// nobody can collect signed refusals of deeds that ran.
package wire

import (
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/manifest"
)

// Version of the protocol. Another is refused, older or newer.
const Version = 1

// MaxRequest is the largest body a device reads.
const MaxRequest = 4 << 20

// QueryHeader carries the base64url (no padding) of a Query's envelope.
const QueryHeader = "Nisse-Query"

// Payload types beside those of package dsse.
const (
	TypeStatus = "application/vnd.nisse.status.v1+json"
	TypeAudit  = "application/vnd.nisse.audit.v1+json"
	// TypeResolve is the broker's "what would this call run".
	TypeResolve = "application/vnd.nisse.resolve.v1+json"
	// TypeResolved is the device's answer to it.
	TypeResolved = "application/vnd.nisse.resolved.v1+json"
)

// Request asks for one deed. It is signed by the broker's request key.
type Request struct {
	V              int    `json:"v"`
	Device         string `json:"device"`
	ManifestDigest string `json:"manifestDigest"`
	Capability     string `json:"capability"`
	// Args in canonical JSON, as a string: these bytes.
	Args string `json:"args"`
	// Deed is its ID: deed.Approved for approved calls, deed.Free otherwise.
	Deed string `json:"deed"`
	// At and ExpiresAt in Unix seconds. The device begins it only between them, give or take its skew at the start.
	At        int64 `json:"at"`
	ExpiresAt int64 `json:"expiresAt"`
	// CorrelationID and Agent go into the audit.
	CorrelationID string `json:"correlationID"`
	Agent         string `json:"agent"`
	// Approved is set for calls that need approval.
	Approved *Approved `json:"approved,omitempty"`
}

// Approved is the proof that a person approved a call.
type Approved struct {
	GateUID string `json:"gateUID"`
	Step    int32  `json:"step"`
	Attempt int32  `json:"attempt"`
	// Statement is the manager's envelope (internal/approval.Statement).
	Statement string `json:"statement"`
	// Signature is a Person's own envelope (internal/approval.Consent), where the call's rule demands one.
	Signature string `json:"signature,omitempty"`
}

// Call that the request asks for.
func (r Request) Call() approval.Call {
	return approval.Call{Device: r.Device, ManifestDigest: r.ManifestDigest, Capability: r.Capability, Args: r.Args}
}

// State of a deed at the device.
type State string

const (
	// Succeeded: it ran and succeeded.
	Succeeded State = "Succeeded"
	// Failed: it ran and failed; for exec, it exited with another code than 0 or was killed.
	Failed State = "Failed"
	// Refused: it did not run, for Reason.
	Refused State = "Refused"
	// Running: it has begun and not ended.
	Running State = "Running"
	// Unknown: it was begun, and the device could not follow it to its end, or stopped meanwhile. It will not run again.
	Unknown State = "Unknown"
	// NotSeen: no request for it came. It is proof that it never ran only when Now is past the request's ExpiresAt.
	NotSeen State = "NotSeen"
)

// Reason why a deed was refused, or a query, or a change.
type Reason string

// Reasons, in the order in which a device checks.
const (
	NoManifest        Reason = "NoManifest"        // the device holds no manifest yet, so it believes nobody
	BadSignature      Reason = "BadSignature"      // not signed by a trusted request key, or not canonical
	BadVersion        Reason = "BadVersion"        // another protocol version
	OtherDevice       Reason = "OtherDevice"       // meant for another device
	OtherManifest     Reason = "OtherManifest"     // the device does not hold that manifest
	ManifestExpired   Reason = "ManifestExpired"   // the manifest is past its end
	Revoked           Reason = "Revoked"           // the manifest was revoked
	OlderManifest     Reason = "OlderManifest"     // of a manifest that is brought: the device was given a newer one before
	OlderAnchor       Reason = "OlderAnchor"       // of an order to anchor the audit: a later one was carried out
	AuditIntact       Reason = "AuditIntact"       // of an order to anchor the audit: nothing is wrong with it, and it has all that was kept
	Expired           Reason = "Expired"           // past ExpiresAt
	NotYet            Reason = "NotYet"            // dated in the device's future
	WindowTooLong     Reason = "WindowTooLong"     // ExpiresAt further from At than allowed
	DeedConflict      Reason = "DeedConflict"      // the deed's ID was used for another call
	BadArgs           Reason = "BadArgs"           // malformed arguments
	NotAllowed        Reason = "NotAllowed"        // the manifest does not list it
	NeedsApproval     Reason = "NeedsApproval"     // no statement came with it
	NotCovered        Reason = "NotCovered"        // the statement is not trusted or does not cover this call
	NeedsSignature    Reason = "NeedsSignature"    // its rule demands a person's own signature, and none came that covers this call
	WrongDeed         Reason = "WrongDeed"         // the deed's ID is not the one of this gate, step and attempt
	Busy              Reason = "Busy"              // too many calls at once; ask again
	AuditUnwritable   Reason = "AuditUnwritable"   // the audit cannot be written; nothing that needs approval runs, nor anything under an Elevated manifest
	TableFull         Reason = "TableFull"         // the deed table is full
	PathRefused       Reason = "PathRefused"       // what the path leads to may not be used
	TargetRefused     Reason = "TargetRefused"     // what the call met on the machine is not what may be touched: another process, another container, a hostile repository
	Unavailable       Reason = "Unavailable"       // the machine lacks what the capability is done with
	Unconfined        Reason = "Unconfined"        // this machine cannot hold it as the manifest demands: as its user, by Landlock
	ExecutableChanged Reason = "ExecutableChanged" // the program is not the one that was approved
)

// Transient tells whether the same request may still run until it expires: nothing was recorded for the deed. Who gets such a
// refusal asks again, and calls the deed over only when the device says NotSeen past ExpiresAt. Every other refusal is kept in the
// deed table and final, whatever comes later.
func (r Reason) Transient() bool {
	switch r {
	case NoManifest, NotYet, AuditUnwritable, TableFull, Busy:
		return true
	default:
		return false
	}
}

// MaxWindowSeconds between At and ExpiresAt.
const MaxWindowSeconds = 3600

// SkewSeconds by which the broker's clock may be ahead of the device's.
const SkewSeconds = 30

// WithProgress behind the path of a deed asks for what it has written so far. A device that does not know it answers without, and who does
// not ask gets no field that an older version would refuse.
const WithProgress = "?progress=1"

// Answer tells what became of a deed. It is signed by the device's key.
type Answer struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	Deed   string `json:"deed"`
	// CallHash of the call that the deed's ID stands for; empty when NotSeen or when the request could not be read.
	CallHash string `json:"callHash"`
	State    State  `json:"state"`
	// Reason when Refused.
	Reason Reason `json:"reason,omitempty"`
	// Message for people when not Succeeded, or when there is more to say: that the call could not be audited.
	Message string `json:"message,omitempty"`
	// Result in JSON when it ran; its shape depends on the capability.
	Result string `json:"result,omitempty"`
	// Progress is the newest of what a program that is Running has written so far, where that was asked for (WithProgress). It is kept
	// nowhere, and proves nothing.
	Progress string `json:"progress,omitempty"`
	// StartedAt and FinishedAt in Unix nanoseconds as decimal strings (they do not fit canonical integers).
	StartedAt  string `json:"startedAt,omitempty"`
	FinishedAt string `json:"finishedAt,omitempty"`
	// AuditRow and AuditHash of the row that recorded the outcome.
	AuditRow  int64  `json:"auditRow,omitempty"`
	AuditHash string `json:"auditHash,omitempty"`
	// Now is the device's clock in Unix seconds.
	Now int64 `json:"now"`
}

// Query authenticates a GET, and who brings a manifest or a revocation. It is signed by the broker's request key.
type Query struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	// Path with query, as in the request line: /v1/audit?after=5.
	Path string `json:"path"`
	// At and ExpiresAt as in Request.
	At        int64 `json:"at"`
	ExpiresAt int64 `json:"expiresAt"`
	// Nonce comes back in Status, AuditPage and checkpoint.Reply.
	Nonce string `json:"nonce"`
}

// Status of a device.
type Status struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	Nonce  string `json:"nonce"`
	// Manifests held, by privilege; those that are expired or revoked are among them.
	Manifests []HeldManifest `json:"manifests"`
	// RevokedEpoch up to which every manifest is revoked; 0 when none ever was.
	RevokedEpoch int64 `json:"revokedEpoch"`
	Now          int64 `json:"now"`
	// AuditRows and AuditHead of the chain.
	AuditRows int64  `json:"auditRows"`
	AuditHead string `json:"auditHead"`
	// AuditLine that they are of; 0 until the audit was anchored anew.
	AuditLine int64 `json:"auditLine,omitempty"`
	// Version of nisse-device.
	Version string `json:"version"`
	// Problems that keep the device from doing all it should, as sentences: a clock that is behind, an audit that cannot be written.
	Problems []string `json:"problems,omitempty"`
}

// HeldManifest is what a device says of a manifest that it holds. The text is the cluster's own.
type HeldManifest struct {
	Privilege manifest.Privilege `json:"privilege"`
	Epoch     int64              `json:"epoch"`
	Digest    string             `json:"digest"`
	// ExpiresAt in RFC 3339, UTC.
	ExpiresAt string `json:"expiresAt"`
}

// Holds tells whether a device holds a manifest and would still run something under it, as of the status.
func (s Status) Holds(digest string) bool {
	for _, m := range s.Manifests {
		if m.Digest == digest {
			return m.Epoch > s.RevokedEpoch
		}
	}
	return false
}

// Revocation kills manifests. It is signed by a request key of a manifest that the device holds.
type Revocation struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	// Epoch up to which every manifest is dead. A device goes no further than its clock and the manifests that it holds, for what is
	// above that has not been signed yet.
	Epoch int64 `json:"epoch"`
	// At in Unix seconds, when it was ordered.
	At int64 `json:"at"`
}

// MaxResolve is how many calls one question may be about: as many as a plan has steps.
const MaxResolve = 50

// Resolve asks what calls would run, before anybody is asked to approve them. Nothing is run and nothing is recorded. It is signed by a
// request key of the manifest that it names.
type Resolve struct {
	V              int    `json:"v"`
	Device         string `json:"device"`
	ManifestDigest string `json:"manifestDigest"`
	// Calls that are asked about, 1 to MaxResolve.
	Calls []AskedCall `json:"calls"`
	// At and ExpiresAt as in Request.
	At        int64 `json:"at"`
	ExpiresAt int64 `json:"expiresAt"`
	// Nonce comes back in Resolved.
	Nonce string `json:"nonce"`
}

// AskedCall is one call that a Resolve asks about.
type AskedCall struct {
	Capability string `json:"capability"`
	// Args in canonical JSON, as a string.
	Args string `json:"args"`
}

// Call number n that is asked about, from 0 on.
func (r Resolve) Call(n int) approval.Call {
	c := r.Calls[n]
	return approval.Call{Device: r.Device, ManifestDigest: r.ManifestDigest, Capability: c.Capability, Args: c.Args}
}

// Resolved is what the calls of a Resolve would run, as of now. The device's key signs it.
type Resolved struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	Nonce  string `json:"nonce"`
	// Calls in the order in which they were asked about.
	Calls []ResolvedCall `json:"calls"`
	Now   int64          `json:"now"`
}

// ResolvedCall is what one call would run; with a Reason it would not run at all, and says nothing else.
type ResolvedCall struct {
	// CallHash of the call that was asked about.
	CallHash string `json:"callHash"`
	// Executable is the file that the program's name leads to, symlinks followed, and SHA256, in hex, of its bytes; both are empty for a
	// call that runs no program of the caller's choice.
	Executable string `json:"executable,omitempty"`
	SHA256     string `json:"sha256,omitempty"`
	// User that it would run as.
	User string `json:"user,omitempty"`
	// Confined tells that Landlock would hold it.
	Confined bool `json:"confined,omitempty"`
	// Reason and Message why it would be refused.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// AuditPage is a part of the audit chain.
type AuditPage struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	Nonce  string `json:"nonce"`
	// Rows in order, each in the chain's canonical form.
	Rows []string `json:"rows"`
	// More tells that there are further rows.
	More bool `json:"more"`
}

// ReadResult of fs.read.
type ReadResult struct {
	Content string `json:"content"`
	// Encoding of content: utf-8 or base64.
	Encoding string `json:"encoding"`
	// Size of the whole file in bytes.
	Size int64 `json:"size"`
	// Truncated tells that there is more after what was read.
	Truncated bool `json:"truncated"`
}

// Entry of a directory, and result of fs.stat.
type Entry struct {
	Name string `json:"name"`
	// Kind: file, directory, symlink or other.
	Kind string `json:"kind"`
	Size int64  `json:"size"`
	// Mode as ls writes it, such as -rw-r--r--.
	Mode string `json:"mode"`
	// ModTime in RFC 3339, UTC, whole seconds.
	ModTime string `json:"modTime"`
	// Target of a symlink.
	Target string `json:"target,omitempty"`
}

// ListResult of fs.list, sorted by name.
type ListResult struct {
	Entries   []Entry `json:"entries"`
	Truncated bool    `json:"truncated"`
}

// WriteResult of fs.write.
type WriteResult struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Created tells that there was no file before.
	Created bool `json:"created"`
}

// ExecResult of exec.
type ExecResult struct {
	ExitCode int `json:"exitCode"`
	// Signal that ended it, such as killed; empty when it exited.
	Signal   string `json:"signal,omitempty"`
	TimedOut bool   `json:"timedOut,omitempty"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// StdoutBytes and StderrBytes written in all; what is above the limit lost its middle.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// Encoding of both: utf-8 or base64.
	Encoding string `json:"encoding"`
}
