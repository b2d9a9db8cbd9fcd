// Package checkpoint is what a device says, signed, about the length and content of its audit, in a form that whoever keeps it can compare
// with what the device says later: the root of a Merkle tree (RFC 6962, as the Go checksum database has it) over the hashes of the rows.
// Device, broker, manager and people judge with it alike. It is pure.
package checkpoint

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// ErrRefused is wrapped when a note is not a checkpoint of that device by that key.
var ErrRefused = errors.New("not a checkpoint of this device")

// ErrOtherDevice is wrapped when an authentic order is for another device.
var ErrOtherDevice = errors.New("it is for another device")

// maxNote is the longest note that is looked at: a name, a number, a hash and a signature.
const maxNote = 1 << 10

// Checkpoint says that the first Rows rows of a device's audit have the root Root. The zero Checkpoint says nothing.
type Checkpoint struct {
	// Line of the audit: 0 until it was anchored anew, then the number of the order (see Anchor).
	Line int64
	Rows int64
	Root tlog.Hash
}

const origin = "nisse.io/device/"

// Origin names the audit of a device, in a checkpoint's first line and in its signature. No other thing that a device's key signs begins so.
func Origin(device string) string { return origin + device }

// DeviceOf a note, as far as it can be told without a key.
func DeviceOf(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	name, _ := strings.CutPrefix(first, origin)
	name, _, _ = strings.Cut(name, "/")
	return name
}

// text of the note: its origin, the rows, the root. It says no time, so that a checkpoint that was lost is made again byte by byte.
func (c Checkpoint) text(device string) string {
	first := Origin(device)
	if c.Line > 0 {
		first += "/" + strconv.FormatInt(c.Line, 10)
	}
	return fmt.Sprintf("%s\n%d\n%s\n", first, c.Rows, c.Root)
}

// Sign the checkpoint of a device's audit.
func (c Checkpoint) Sign(device string, key ed25519.PrivateKey) (string, error) {
	v, err := verifier(device, key.Public().(ed25519.PublicKey))
	if err != nil {
		return "", err
	}
	b, err := note.Sign(&note.Note{Text: c.text(device)}, signer{v, key})
	if err != nil {
		return "", fmt.Errorf("sign the checkpoint of %d rows: %w", c.Rows, err)
	}
	return string(b), nil
}

// Open a note and verify that the device's key signed it, as this device's. Only the form that Sign makes is taken: notes are kept as they are, and
// nobody has signed the lines beside the device's own, so that one could fill with them what keeps it.
func Open(text, device string, key ed25519.PublicKey) (Checkpoint, error) {
	if len(text) > maxNote {
		return Checkpoint{}, fmt.Errorf("%w: a note of %d bytes", ErrRefused, len(text))
	}
	v, err := verifier(device, key)
	if err != nil {
		return Checkpoint{}, err
	}
	n, err := note.Open([]byte(text), note.VerifierList(v))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var c Checkpoint
	if lines := strings.Split(n.Text, "\n"); len(lines) == 4 {
		if line, ok := strings.CutPrefix(lines[0], Origin(device)+"/"); ok {
			c.Line, _ = strconv.ParseInt(line, 10, 64)
		}
		c.Rows, _ = strconv.ParseInt(lines[1], 10, 64) // what does not parse is not what text makes either
		c.Root, _ = ParseRoot(lines[2])
	}
	if c.Rows < 1 || c.text(device) != n.Text {
		return Checkpoint{}, fmt.Errorf("%w: it does not consist of origin, rows and root", ErrRefused)
	}
	if alone, err := note.Sign(&note.Note{Text: n.Text, Sigs: n.Sigs}); err != nil || string(alone) != text {
		return Checkpoint{}, fmt.Errorf("%w: it bears other lines than the device's signature", ErrRefused)
	}
	return c, nil
}

// ParseRoot reads a root or a hash of a proof.
func ParseRoot(s string) (tlog.Hash, error) {
	var h tlog.Hash
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("%q is not base64 of %d bytes", s, len(h))
	}
	return tlog.Hash(b), nil
}

func verifier(device string, key ed25519.PublicKey) (note.Verifier, error) {
	text, err := note.NewEd25519VerifierKey(Origin(device), key)
	if err != nil {
		return nil, fmt.Errorf("the key of device %q: %w", device, err)
	}
	v, err := note.NewVerifier(text)
	if err != nil {
		return nil, fmt.Errorf("the key of device %q: %w", device, err)
	}
	return v, nil
}

// signer of notes by a key that is at hand, not in the text form that package note wants.
type signer struct {
	note.Verifier
	key ed25519.PrivateKey
}

func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }
