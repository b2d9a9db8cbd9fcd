// Package manifests is what a device was told to allow: the signed manifests that it holds, one of each privilege at most, and the epoch
// up to which every manifest is revoked. The rules are here, and so is the table that they outlive a restart in.
package manifests

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

// Held is a manifest that the root key signed.
type Held struct {
	*manifest.Manifest
	Digest string
	// Envelope as it came.
	Envelope string
	// Ends is when nothing begins under it any more, in Unix seconds.
	Ends int64
	// request and approval keys, parsed once.
	request, approval []ed25519.PublicKey
}

// Open an envelope that the root key signed. Whether the device may hold it is for Set.Accept to say.
func Open(envelope string, root ed25519.PublicKey) (*Held, error) {
	m, err := manifest.Open(envelope, []ed25519.PublicKey{root})
	if err != nil {
		return nil, err
	}
	digest, err := m.Digest()
	if err != nil {
		return nil, err
	}
	end, err := m.Expiry()
	if err != nil {
		return nil, err
	}
	return &Held{Manifest: m, Digest: digest, Envelope: envelope, Ends: end.Unix(), request: m.Keys.RequestKeys(), approval: m.Keys.ApprovalKeys()}, nil
}

// RequestKeys whose requests under this manifest are looked at.
func (h *Held) RequestKeys() []ed25519.PublicKey { return h.request }

// ApprovalKeys whose statements count under this manifest.
func (h *Held) ApprovalKeys() []ed25519.PublicKey { return h.approval }

// Trusts tells whether a key is one of the manifest's request keys.
func (h *Held) Trusts(by ed25519.PublicKey) bool {
	return slices.ContainsFunc(h.request, func(k ed25519.PublicKey) bool { return k.Equal(by) })
}

// Set of manifests that a device holds. It is a value: a change makes another.
type Set struct {
	// held, by privilege.
	held []*Held
	// Revoked is the epoch up to which every manifest is dead.
	Revoked int64
}

// All manifests held, by privilege.
func (s Set) All() []*Held { return s.held }

// Get the manifest with a digest; nil when it is not held.
func (s Set) Get(digest string) *Held {
	return s.find(func(h *Held) bool { return h.Digest == digest })
}

func (s Set) find(is func(*Held) bool) *Held {
	if i := slices.IndexFunc(s.held, is); i >= 0 {
		return s.held[i]
	}
	return nil
}

// RequestKeys of all manifests held, the dead ones too: who may ask about a dead manifest learns what was done under it.
func (s Set) RequestKeys() []ed25519.PublicKey {
	var all []ed25519.PublicKey
	for _, h := range s.held {
		all = append(all, h.request...)
	}
	return all
}

// Wire form of the set.
func (s Set) Wire() []wire.HeldManifest {
	all := make([]wire.HeldManifest, len(s.held))
	for i, h := range s.held {
		all[i] = h.Wire()
	}
	return all
}

// Wire form of the manifest.
func (h *Held) Wire() wire.HeldManifest {
	return wire.HeldManifest{Privilege: h.Privilege, Epoch: h.Epoch, Digest: h.Digest, ExpiresAt: h.ExpiresAt}
}

// Dead tells why nothing may begin under a manifest that is held, as of now in Unix seconds; empty when something may.
func (s Set) Dead(h *Held, now int64) (wire.Reason, string) {
	switch {
	case now >= h.Ends:
		return wire.ManifestExpired, fmt.Sprintf("the %s manifest %s ended at %s; sign it anew with the root key", h.Privilege, h.Digest, h.ExpiresAt)
	case h.Epoch <= s.Revoked:
		return wire.Revoked, fmt.Sprintf("the %s manifest %s, of epoch %d, is revoked: everything up to epoch %d is; only one that the root key signs anew counts", h.Privilege, h.Digest, h.Epoch, s.Revoked)
	}
	return "", ""
}

// Accept a manifest in the place of the one of its privilege. changed is false when it is held already. now is in Unix seconds.
func (s Set) Accept(h *Held, device string, now int64) (next Set, changed bool, reason wire.Reason, message string) {
	refuse := func(reason wire.Reason, format string, args ...any) (Set, bool, wire.Reason, string) {
		return s, false, reason, fmt.Sprintf(format, args...)
	}
	before := s.find(func(o *Held) bool { return o.Privilege == h.Privilege })
	// To a clock that is behind by the skew, a manifest that was just signed seems to last that much longer.
	lasting := h.Lasting(time.Unix(min(now+wire.SkewSeconds, h.Ends-1), 0))
	dead, why := s.Dead(h, now)
	switch {
	case h.Device != device:
		return refuse(wire.OtherDevice, "this is device %s, the manifest is for %s", device, h.Device)
	case dead != "":
		return refuse(dead, "%s", why)
	case lasting != nil:
		return refuse(wire.BadArgs, "%s", lasting)
	case before != nil && before.Digest == h.Digest:
		return s, false, "", ""
	case before != nil && h.Epoch <= before.Epoch:
		return refuse(wire.OlderManifest, "its epoch is %d, and the %s manifest held is of epoch %d; sign it anew", h.Epoch, h.Privilege, before.Epoch)
	}
	next = Set{Revoked: s.Revoked, held: []*Held{h}}
	for _, o := range s.held {
		if o.Privilege != h.Privilege {
			next.held = append(next.held, o)
		}
	}
	slices.SortFunc(next.held, byPrivilege)
	return next, true, "", ""
}

func byPrivilege(a, b *Held) int { return cmp.Compare(a.Privilege, b.Privilege) }

// Revoke every manifest up to an epoch, as far as one can have been signed by now. An order that goes further, with which a stolen request
// key would keep every manifest away that is ever signed, kills what is held and no more.
func (s Set) Revoke(epoch, now int64) Set {
	var highest int64
	for _, h := range s.held {
		highest = max(highest, h.Epoch)
	}
	if epoch > max(now+wire.SkewSeconds, highest) {
		epoch = highest
	}
	s.Revoked = max(s.Revoked, epoch)
	return s
}

const metaRevoked = "manifests.revoked"

// Load what a store remembers. A manifest that the pinned root key did not sign, or that names another device, is not held: the machine's
// owner has pinned another. strange has an error for each.
func Load(ctx context.Context, q store.Querier, device string, root ed25519.PublicKey) (s Set, strange []error, err error) {
	if s.Revoked, err = store.MetaInt(ctx, q, metaRevoked); err != nil {
		return Set{}, nil, fmt.Errorf("manifests: %w", err)
	}
	rows, err := q.QueryContext(ctx, "SELECT envelope FROM manifests ORDER BY privilege")
	if err != nil {
		return Set{}, nil, fmt.Errorf("manifests: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var envelope string
		if err := rows.Scan(&envelope); err != nil {
			return Set{}, nil, fmt.Errorf("manifests: %w", err)
		}
		h, err := Open(envelope, root)
		if err == nil && h.Device != device {
			err = fmt.Errorf("it is for device %s, this is %s", h.Device, device)
		}
		if errors.Is(err, dsse.ErrRefused) {
			err = fmt.Errorf("%w; is rootKey of the config another one now?", err)
		}
		if err != nil {
			strange = append(strange, fmt.Errorf("a stored manifest does not count: %w", err))
			continue
		}
		s.held = append(s.held, h)
	}
	if err := rows.Err(); err != nil {
		return Set{}, nil, fmt.Errorf("manifests: %w", err)
	}
	slices.SortFunc(s.held, byPrivilege)
	return s, strange, nil
}

// Save a manifest in the place of the one of its privilege.
func (h *Held) Save(ctx context.Context, q store.Querier) error {
	_, err := q.ExecContext(ctx, `INSERT INTO manifests (privilege, epoch, digest, envelope) VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET epoch = excluded.epoch, digest = excluded.digest, envelope = excluded.envelope`, h.Privilege, h.Epoch, h.Digest, h.Envelope)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", h.Digest, err)
	}
	return nil
}

// SaveRevoked epoch.
func SaveRevoked(ctx context.Context, q store.Querier, epoch int64) error {
	if err := store.SetMetaInt(ctx, q, metaRevoked, epoch); err != nil {
		return fmt.Errorf("revocation: %w", err)
	}
	return nil
}
