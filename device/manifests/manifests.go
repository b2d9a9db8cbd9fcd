// Package manifests is what a device was told to allow: the signed manifests that it holds, one of each privilege at most, and the epoch
// up to which every manifest is revoked. The rules are here, and so is the table that they outlive a restart in.
package manifests

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
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
	// root key that signed it.
	root ed25519.PublicKey
	// request and approval keys, parsed once.
	request, approval []ed25519.PublicKey
	persons           map[string][]ed25519.PublicKey
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
	return &Held{Manifest: m, Digest: digest, Envelope: envelope, Ends: end.Unix(), root: root, request: m.Keys.RequestKeys(), approval: m.Keys.ApprovalKeys(),
		persons: m.Keys.PersonKeys()}, nil
}

// RequestKeys whose requests under this manifest are looked at.
func (h *Held) RequestKeys() []ed25519.PublicKey { return h.request }

// ApprovalKeys whose statements count under this manifest.
func (h *Held) ApprovalKeys() []ed25519.PublicKey { return h.approval }

// PersonKeys by the names of Persons, whose own signatures count under this manifest.
func (h *Held) PersonKeys() map[string][]ed25519.PublicKey { return h.persons }

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
	// floors are the epochs of manifests that were held once and cannot be read any more, by privilege: nothing older takes their place.
	floors map[manifest.Privilege]int64
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
	case h.Epoch <= s.floors[h.Privilege]:
		return refuse(wire.OlderManifest, "its epoch is %d, and the %s manifest that was held before is of epoch %d, though it cannot be read any more; sign it anew", h.Epoch, h.Privilege, s.floors[h.Privilege])
	}
	next = Set{Revoked: s.Revoked, held: []*Held{h}, floors: s.floors}
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
	for _, floor := range s.floors {
		highest = max(highest, floor)
	}
	if epoch > max(now+wire.SkewSeconds, highest) {
		epoch = highest
	}
	s.Revoked = max(s.Revoked, epoch)
	return s
}

const metaRevoked = "manifests.revoked"

// Load what a store remembers. A manifest that the pinned root key did not sign, or that names another device, is not held: the machine's
// owner has pinned another. One that this root key did sign for this device, and that cannot be read any more, is not held either, but its
// epoch counts: a program that reads more strictly must not let an older manifest come back. strange has an error for each.
func Load(ctx context.Context, q store.Querier, device string, root ed25519.PublicKey) (s Set, strange []error, err error) {
	if s.Revoked, err = store.MetaInt(ctx, q, metaRevoked); err != nil {
		return Set{}, nil, fmt.Errorf("manifests: %w", err)
	}
	rows, err := q.QueryContext(ctx, "SELECT privilege, epoch, envelope, root, device FROM manifests ORDER BY privilege")
	if err != nil {
		return Set{}, nil, fmt.Errorf("manifests: %w", err)
	}
	defer rows.Close()
	s.floors = map[manifest.Privilege]int64{}
	for rows.Next() {
		var r stored
		if err := rows.Scan(&r.privilege, &r.epoch, &r.envelope, &r.root, &r.device); err != nil {
			return Set{}, nil, fmt.Errorf("manifests: %w", err)
		}
		h, ours, err := r.open(device, root)
		if err != nil {
			strange = append(strange, fmt.Errorf("a stored manifest does not count: %w", err))
			if ours {
				s.floors[r.privilege] = r.epoch
			}
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

// stored manifest as its row has it. root and device are empty in rows of a version that did not write them.
type stored struct {
	privilege manifest.Privilege
	epoch     int64
	envelope  string
	root      string
	device    string
}

// open what is stored, as one of this device's. ours tells of one that cannot be opened whether it was, as far as the row knows.
func (r stored) open(device string, root ed25519.PublicKey) (h *Held, ours bool, err error) {
	h, err = Open(r.envelope, root)
	switch {
	case err == nil && h.Device == device:
		return h, true, nil
	case err == nil:
		return nil, false, fmt.Errorf("it is for device %s, this is %s", h.Device, device)
	case r.root == "":
		var any json.RawMessage
		_, unsigned := dsse.Verify([]byte(r.envelope), dsse.TypeManifest, []ed25519.PublicKey{root}, &any)
		ours = unsigned == nil
	default:
		ours = r.root == dsse.EncodeKey(root) && r.device == device
	}
	if errors.Is(err, dsse.ErrRefused) {
		err = fmt.Errorf("%w; is rootKey of the config another one now?", err)
	}
	return nil, ours, err
}

// Save a manifest in the place of the one of its privilege.
func (h *Held) Save(ctx context.Context, q store.Querier) error {
	_, err := q.ExecContext(ctx, `INSERT INTO manifests (privilege, epoch, digest, envelope, root, device) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET epoch = excluded.epoch, digest = excluded.digest, envelope = excluded.envelope, root = excluded.root, device = excluded.device`,
		h.Privilege, h.Epoch, h.Digest, h.Envelope, dsse.EncodeKey(h.root), h.Device)
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
