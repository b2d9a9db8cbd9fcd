package wire

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
)

// ErrVersion is wrapped when an envelope is authentic but speaks another version of the protocol.
var ErrVersion = errors.New("another protocol version")

// ErrMismatch is wrapped when an envelope is authentic but does not belong to what was asked: an answer about another deed or from
// another device, a status for another query. Whoever receives it has learned nothing and asks again.
var ErrMismatch = errors.New("not an answer to this question")

// RefusedError is a device's refusal to answer a query, or of a request that it could not read.
type RefusedError struct {
	Reason  Reason
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the device refused (%s): %s", e.Reason, e.Message)
}

// SignRequest returns the body of POST /v1/call. V is set.
func SignRequest(key ed25519.PrivateKey, r Request) ([]byte, error) {
	r.V = Version
	return dsse.Sign(key, dsse.TypeRequest, r)
}

// OpenRequest verifies the body of POST /v1/call and tells which key signed it. With ErrVersion the request is returned as far as it
// could be read; with any other error nothing of it may be believed.
func OpenRequest(envelope []byte, trusted []ed25519.PublicKey) (Request, ed25519.PublicKey, error) {
	var r Request
	by, err := open(envelope, dsse.TypeRequest, trusted, &r)
	if err != nil && !errors.Is(err, ErrVersion) {
		return Request{}, nil, err
	}
	return r, by, err
}

// SignRevocation returns the body of POST /v1/revoke. V is set.
func SignRevocation(key ed25519.PrivateKey, r Revocation) ([]byte, error) {
	r.V = Version
	return dsse.Sign(key, dsse.TypeRevocation, r)
}

// OpenRevocation verifies the body of POST /v1/revoke and tells which key signed it; errors as for OpenRequest.
func OpenRevocation(envelope []byte, trusted []ed25519.PublicKey) (Revocation, ed25519.PublicKey, error) {
	var r Revocation
	by, err := open(envelope, dsse.TypeRevocation, trusted, &r)
	if err != nil && !errors.Is(err, ErrVersion) {
		return Revocation{}, nil, err
	}
	return r, by, err
}

// SignQuery returns the value of the header Nisse-Query. V is set.
func SignQuery(key ed25519.PrivateKey, q Query) (string, error) {
	q.V = Version
	b, err := dsse.Sign(key, dsse.TypeQuery, q)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// OpenQuery verifies the value of the header Nisse-Query and tells which key signed it; errors as for OpenRequest.
func OpenQuery(header string, trusted []ed25519.PublicKey) (Query, ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(header)
	if err != nil {
		return Query{}, nil, fmt.Errorf("%w: %s is not base64url: %w", dsse.ErrRefused, QueryHeader, err)
	}
	var q Query
	by, err := open(b, dsse.TypeQuery, trusted, &q)
	if err != nil && !errors.Is(err, ErrVersion) {
		return Query{}, nil, err
	}
	return q, by, err
}

// SignAnswer returns the body of an answer. V is set.
func SignAnswer(key ed25519.PrivateKey, a Answer) ([]byte, error) {
	a.V = Version
	return dsse.Sign(key, dsse.TypeAnswer, a)
}

// OpenAnswer verifies the answer of a device about a deed. An answer that names no deed is a refusal of something the device could
// not read or authenticate, and comes back as *RefusedError: it says nothing about the deed.
func OpenAnswer(envelope []byte, key ed25519.PublicKey, device, deed string) (Answer, error) {
	var a Answer
	if _, err := open(envelope, dsse.TypeAnswer, []ed25519.PublicKey{key}, &a); err != nil {
		return Answer{}, err
	}
	switch {
	case a.Device != device:
		return Answer{}, fmt.Errorf("%w: it is from device %q, not %q", ErrMismatch, a.Device, device)
	case a.Deed == "" && a.State == Refused:
		return Answer{}, &RefusedError{Reason: a.Reason, Message: a.Message}
	case a.Deed != deed:
		return Answer{}, fmt.Errorf("%w: it is about deed %q, not %q", ErrMismatch, a.Deed, deed)
	}
	return a, nil
}

// SignStatus returns the body of a status. V is set.
func SignStatus(key ed25519.PrivateKey, s Status) ([]byte, error) {
	s.V = Version
	if s.Manifests == nil {
		s.Manifests = []HeldManifest{}
	}
	return dsse.Sign(key, TypeStatus, s)
}

// OpenStatus verifies the status that answers q, whether that asked for it or brought a manifest or a revocation. A refusal comes back as *RefusedError.
func OpenStatus(envelope []byte, key ed25519.PublicKey, q Query) (Status, error) {
	var s Status
	if err := openReply(envelope, TypeStatus, key, q, &s); err != nil {
		return Status{}, err
	}
	if s.Device != q.Device || s.Nonce != q.Nonce {
		return Status{}, fmt.Errorf("%w: status of device %q with nonce %q", ErrMismatch, s.Device, s.Nonce)
	}
	return s, nil
}

// SignAuditPage returns the body of a page of the audit. V is set.
func SignAuditPage(key ed25519.PrivateKey, p AuditPage) ([]byte, error) {
	p.V = Version
	return dsse.Sign(key, TypeAudit, p)
}

// OpenAuditPage verifies the page that answers q. A refusal comes back as *RefusedError.
func OpenAuditPage(envelope []byte, key ed25519.PublicKey, q Query) (AuditPage, error) {
	var p AuditPage
	if err := openReply(envelope, TypeAudit, key, q, &p); err != nil {
		return AuditPage{}, err
	}
	if p.Device != q.Device || p.Nonce != q.Nonce {
		return AuditPage{}, fmt.Errorf("%w: audit of device %q with nonce %q", ErrMismatch, p.Device, p.Nonce)
	}
	return p, nil
}

// OpenCheckpoint verifies the reply that answers q, and the checkpoint in it; what it says about the audit is for checkpoint.Judge. A refusal comes
// back as *RefusedError.
func OpenCheckpoint(envelope []byte, key ed25519.PublicKey, q Query) (checkpoint.Opened, error) {
	o, err := checkpoint.OpenReply(envelope, q.Device, key)
	if err != nil {
		if refused := refusal(envelope, key, q); refused != nil {
			return checkpoint.Opened{}, refused
		}
		return checkpoint.Opened{}, err
	}
	if o.Nonce != q.Nonce {
		return checkpoint.Opened{}, fmt.Errorf("%w: checkpoint with nonce %q", ErrMismatch, o.Nonce)
	}
	return o, nil
}

// SignResolve returns the body of POST /v1/resolve. V is set.
func SignResolve(key ed25519.PrivateKey, r Resolve) ([]byte, error) {
	r.V = Version
	return dsse.Sign(key, TypeResolve, r)
}

// OpenResolve verifies the body of POST /v1/resolve and tells which key signed it; errors as for OpenRequest.
func OpenResolve(envelope []byte, trusted []ed25519.PublicKey) (Resolve, ed25519.PublicKey, error) {
	var r Resolve
	by, err := open(envelope, TypeResolve, trusted, &r)
	if err != nil && !errors.Is(err, ErrVersion) {
		return Resolve{}, nil, err
	}
	return r, by, err
}

// SignResolved returns the answer to a Resolve. V is set.
func SignResolved(key ed25519.PrivateKey, r Resolved) ([]byte, error) {
	r.V = Version
	return dsse.Sign(key, TypeResolved, r)
}

// OpenResolved verifies the answer to asked: it is about those calls, in that order. A refusal comes back as *RefusedError.
func OpenResolved(envelope []byte, key ed25519.PublicKey, asked Resolve) (Resolved, error) {
	var r Resolved
	if err := openReply(envelope, TypeResolved, key, Query{Device: asked.Device}, &r); err != nil {
		return Resolved{}, err
	}
	if r.Device != asked.Device || r.Nonce != asked.Nonce || len(r.Calls) != len(asked.Calls) {
		return Resolved{}, fmt.Errorf("%w: it is of device %q with nonce %q about %d calls", ErrMismatch, r.Device, r.Nonce, len(r.Calls))
	}
	for n, c := range r.Calls {
		if c.CallHash != asked.Call(n).Hash() {
			return Resolved{}, fmt.Errorf("%w: it is about another call %d (%s)", ErrMismatch, n+1, c.CallHash)
		}
	}
	return r, nil
}

// openReply opens the answer to a query, which is of payloadType, or an Answer when the device refuses the query itself.
func openReply(envelope []byte, payloadType string, key ed25519.PublicKey, q Query, out any) error {
	_, err := open(envelope, payloadType, []ed25519.PublicKey{key}, out)
	if err == nil || errors.Is(err, ErrVersion) {
		return err
	}
	if refused := refusal(envelope, key, q); refused != nil {
		return refused
	}
	return err
}

// refusal of a query; nil when the envelope is something else.
func refusal(envelope []byte, key ed25519.PublicKey, q Query) error {
	var a Answer
	if _, err := open(envelope, dsse.TypeAnswer, []ed25519.PublicKey{key}, &a); err == nil && a.Device == q.Device && a.State == Refused {
		return &RefusedError{Reason: a.Reason, Message: a.Message}
	}
	return nil
}

// open verifies an envelope and its version, decodes it and tells which key signed it. The version is looked at before the fields, so
// that a newer peer is told that its version is the trouble, not that its fields are unknown.
func open(envelope []byte, payloadType string, trusted []ed25519.PublicKey, out any) (ed25519.PublicKey, error) {
	var raw json.RawMessage
	by, err := dsse.Verify(envelope, payloadType, trusted, &raw)
	if err != nil {
		return nil, err
	}
	var v struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("%w: payload: %w", dsse.ErrRefused, err)
	}
	if v.V != Version {
		_ = json.Unmarshal(raw, out) // as far as it goes: the deed's ID, for the refusal
		return by, fmt.Errorf("%w: %d, want %d", ErrVersion, v.V, Version)
	}
	if err := canonical.Strict(raw, out); err != nil {
		return nil, fmt.Errorf("%w: payload: %w", dsse.ErrRefused, err)
	}
	return by, nil
}
