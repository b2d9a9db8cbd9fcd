package checkpoint

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/internal/dsse"
)

// Version of Reply.
const Version = 1

// Type of a Reply's envelope.
const Type = "application/vnd.nisse.checkpoint.v1+json"

// Reply of a device to who has kept its checkpoint of Since rows. It is signed as a whole: whoever carries it can neither bend the proof nor claim
// that there is none.
type Reply struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	// Nonce of the query.
	Nonce string `json:"nonce"`
	// Since is the size of the tree that the asker has; 0 when it has none.
	Since int64 `json:"since"`
	// Known is the root of that tree, as the asker has told it; empty when he told none. A device that says it has lost rows, or that its audit is
	// bent, says so to somebody who knew this root, and so after the rows of that tree were written.
	Known string `json:"known,omitempty"`
	// Checkpoint is the newest, as a note; empty when there is none.
	Checkpoint string `json:"checkpoint"`
	// Proof that it extends the tree of Since rows: hashes in base64, as RFC 6962 orders them. None when it has no more rows than that.
	Proof []string `json:"proof"`
	// Finding of the device about its own audit: nothing is added to it any more.
	Finding *Finding `json:"finding,omitempty"`
	// Now is the device's clock in Unix seconds.
	Now int64 `json:"now"`
}

// Sign a reply. V is set.
func (r Reply) Sign(key ed25519.PrivateKey) ([]byte, error) {
	r.V = Version
	if r.Proof == nil {
		r.Proof = []string{}
	}
	return dsse.Sign(key, Type, r)
}

// Opened is a reply whose signatures hold, its note's too.
type Opened struct {
	Reply
	// At is the checkpoint; zero when the device has none.
	At    Checkpoint
	proof tlog.TreeProof
}

// OpenReply verifies a reply and the checkpoint in it, and returns both. What it says about the audit is for Judge.
func OpenReply(envelope []byte, device string, key ed25519.PublicKey) (Opened, error) {
	var o Opened
	if _, err := dsse.Verify(envelope, Type, []ed25519.PublicKey{key}, &o.Reply); err != nil {
		return Opened{}, err
	}
	if o.V != Version {
		return Opened{}, fmt.Errorf("%w: version %d, want %d", dsse.ErrRefused, o.V, Version)
	}
	if o.Device != device {
		return Opened{}, fmt.Errorf("%w: it is of device %q, not %q", dsse.ErrRefused, o.Device, device)
	}
	for _, s := range o.Proof {
		h, err := ParseRoot(s)
		if err != nil {
			return Opened{}, fmt.Errorf("%w: proof: %w", dsse.ErrRefused, err)
		}
		o.proof = append(o.proof, h)
	}
	if o.Checkpoint == "" {
		return o, nil
	}
	var err error
	if o.At, err = Open(o.Checkpoint, device, key); err != nil {
		return Opened{}, fmt.Errorf("%w: %w", dsse.ErrRefused, err)
	}
	return o, nil
}

// What a reply can be beside good and bad: of no use. Nothing is known then, and the device has to be asked again.
var (
	// ErrOtherSince: it was given to somebody who had kept another checkpoint.
	ErrOtherSince = errors.New("the reply answers for another checkpoint than the one that was kept")
	// ErrOlder: it accuses the device, and was not given to who has kept this checkpoint. It may be right, and it may be from before those rows.
	ErrOlder = errors.New("the reply may be older than the checkpoint that was kept")
)

// ErrAnchored is what a reply can be that is signed and is no part of what was kept: the device has begun a new line of its audit. Whether it was
// ordered to is told by the order.
var ErrAnchored = errors.New("the device has begun a new line of its audit")

// Judge a reply by what was kept. nil: the audit as it is now contains all that was kept, and the checkpoint may be kept in turn. A *Finding: the
// device itself has signed that it does not.
//
// A reply that accuses must have been given to who has kept this very checkpoint: whoever carries replies could store one from before some rows came,
// and play it as their loss. That is told by the root, which nobody knows before those rows are there, and not by a clock: a device's may be put
// forward and back. A reply that is in order proves itself, whomever it was given to.
func Judge(kept Checkpoint, r Opened) error {
	back := r.At.Rows > 0 && r.At.Line < kept.Line
	accuses := r.Finding != nil || r.At.Rows < kept.Rows || back
	switch {
	case kept.Rows > 0 && r.At.Line > kept.Line:
		return ErrAnchored
	case accuses && kept.Rows > 0 && (r.Since != kept.Rows || r.Known != kept.Root.String()):
		return ErrOlder
	case r.Finding != nil:
		return r.Finding.Bounded()
	case back:
		return &Finding{Truncated, 1, fmt.Sprintf("line %d was kept, and the device is back at line %d", kept.Line, r.At.Line)}
	case r.At.Rows < kept.Rows:
		return &Finding{Truncated, r.At.Rows + 1, fmt.Sprintf("%d rows were kept, the device has %d", kept.Rows, r.At.Rows)}
	case r.At.Rows == kept.Rows && r.At.Root == kept.Root, kept.Rows == 0:
		return nil
	case r.At.Rows == kept.Rows:
		return &Finding{Forked, kept.Rows, "the device has signed two different audits of that length: rows up to this one were written anew"}
	case r.Since != kept.Rows:
		return ErrOtherSince
	}
	if err := tlog.CheckTree(r.proof, r.At.Rows, r.At.Root, kept.Rows, kept.Root); err != nil {
		return &Finding{Forked, kept.Rows, "what the device has now does not contain the rows up to this one as they were kept: " + err.Error()}
	}
	return nil
}
