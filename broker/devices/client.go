// Package devices speaks with the devices: it signs what the broker asks, believes only answers that the device's own key signed,
// and knows which of them answer, since when, and what they allow.
package devices

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
)

// What can go wrong with a device. The three differ in what is known of the deed afterwards.
var (
	// ErrNotSent: no connection came about, so nothing has reached the device.
	ErrNotSent = errors.New("the device cannot be reached")
	// ErrNoAnswer: something may have reached it, and no answer came back that can be read.
	ErrNoAnswer = errors.New("the device gave no answer")
	// ErrUntrusted: what is at the device's address does not hold its key. Found before anything was sent, ErrNotSent is wrapped beside it.
	ErrUntrusted = errors.New("what answers does not prove to be the device")
	// ErrNotEnrolled: the cluster does not know the machine's key yet.
	ErrNotEnrolled = errors.New("the device's key is not known yet")
	// ErrInsecure: the way to the device is not one that requests may take. Nothing has reached it.
	ErrInsecure = errors.New("no safe way to the device")
)

// queryLife is how long a signed question is good for.
const queryLife = 30 * time.Second

// Target is where a device is and what it must prove.
type Target struct {
	Name string
	URL  string
	Key  ed25519.PublicKey
}

// TargetOf reads a Device.
func TargetOf(d *v1alpha1.Device) (Target, error) {
	if d.Spec.PublicKey == "" {
		return Target{}, ErrNotEnrolled
	}
	key, err := dsse.ParseKey(d.Spec.PublicKey)
	if err != nil {
		return Target{}, fmt.Errorf("device %s: spec.publicKey: %w", d.Name, err)
	}
	return Target{Name: d.Name, URL: d.Spec.URL, Key: key}, nil
}

// Client signs and sends.
type Client struct {
	ways ways
	key  ed25519.PrivateKey
	now  func() time.Time
}

// NewClient returns a client that signs with the request key.
func NewClient(key ed25519.PrivateKey, now func() time.Time) *Client {
	return &Client{key: key, now: now}
}

// Forget a device that is gone.
func (c *Client) Forget(device string) { c.ways.forget(device) }

// Call sends a request and returns the device's answer. The context bounds how long the device may take.
func (c *Client) Call(ctx context.Context, t Target, r wire.Request) (wire.Answer, error) {
	body, err := wire.SignRequest(c.key, r)
	if err != nil {
		return wire.Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if len(body) > wire.MaxRequest {
		return wire.Answer{}, fmt.Errorf("%w: the request has %d bytes, a device reads %d", ErrNotSent, len(body), wire.MaxRequest)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+"/v1/call", bytes.NewReader(body))
	if err != nil {
		return wire.Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	req.Header.Set("Content-Type", "application/json")
	return c.answer(req, t, r.Deed, r.Call().Hash())
}

// Deed asks what became of a deed whose call has this hash.
func (c *Client) Deed(ctx context.Context, t Target, deed, callHash string) (wire.Answer, error) {
	return c.deed(ctx, t, deed, "", callHash)
}

// Progress asks what a deed has written so far, if it runs.
func (c *Client) Progress(ctx context.Context, t Target, deed, callHash string) (string, error) {
	a, err := c.deed(ctx, t, deed, wire.WithProgress, callHash)
	if err != nil || a.State != wire.Running {
		return "", err
	}
	return a.Progress, nil
}

func (c *Client) deed(ctx context.Context, t Target, deed, query, callHash string) (wire.Answer, error) {
	req, _, err := c.query(ctx, t, http.MethodGet, "/v1/deeds/"+deed+query, nil)
	if err != nil {
		return wire.Answer{}, err
	}
	return c.answer(req, t, deed, callHash)
}

// Status asks for the device's status.
func (c *Client) Status(ctx context.Context, t Target) (wire.Status, error) {
	return c.status(ctx, t, http.MethodGet, "/v1/status", nil)
}

// maxReply with a checkpoint, in bytes: what a Device's status holds.
const maxReply = 32 << 10

// Checkpoint asks for the device's newest checkpoint and a proof that it extends the one of since rows, which has this root. The envelope is what the
// device signed.
func (c *Client) Checkpoint(ctx context.Context, t Target, since int64, root string) (checkpoint.Opened, string, error) {
	path := fmt.Sprintf("/v1/checkpoint?since=%d", since)
	if since > 0 {
		path += "&root=" + url.QueryEscape(root)
	}
	req, q, err := c.query(ctx, t, http.MethodGet, path, nil)
	if err != nil {
		return checkpoint.Opened{}, "", err
	}
	body, err := c.do(req, t)
	if err != nil {
		return checkpoint.Opened{}, "", err
	}
	o, err := wire.OpenCheckpoint(body, t.Key, q)
	if err != nil {
		return checkpoint.Opened{}, "", opened(err)
	}
	switch {
	case o.Since != since || since > 0 && o.Known != root:
		return checkpoint.Opened{}, "", fmt.Errorf("%w: it answers for another checkpoint than it was asked from, so that its proof proves nothing", ErrNoAnswer)
	case len(body) > maxReply:
		return checkpoint.Opened{}, "", fmt.Errorf("%w: its checkpoint comes in %d bytes, and %d are enough for any", ErrNoAnswer, len(body), maxReply)
	}
	return o, string(body), nil
}

// Rows of the device's audit after one of them, as many as a page has, and whether there are more.
func (c *Client) Rows(ctx context.Context, t Target, after int64) ([]string, bool, error) {
	req, q, err := c.query(ctx, t, http.MethodGet, fmt.Sprintf("/v1/audit?after=%d", after), nil)
	if err != nil {
		return nil, false, err
	}
	body, err := c.do(req, t)
	if err != nil {
		return nil, false, err
	}
	p, err := wire.OpenAuditPage(body, t.Key, q)
	if err != nil {
		return nil, false, opened(err)
	}
	return p.Rows, p.More, nil
}

// Bring a manifest to the device, by the envelope that the root key made.
func (c *Client) Bring(ctx context.Context, t Target, envelope string) (wire.Status, error) {
	return c.status(ctx, t, http.MethodPost, "/v1/manifests", []byte(envelope))
}

// Anchor the device's audit anew, by the order that the root key signed.
func (c *Client) Anchor(ctx context.Context, t Target, order string) (wire.Status, error) {
	return c.status(ctx, t, http.MethodPost, "/v1/anchor", []byte(order))
}

// Revoke every manifest of the device up to an epoch.
func (c *Client) Revoke(ctx context.Context, t Target, epoch int64) (wire.Status, error) {
	body, err := wire.SignRevocation(c.key, wire.Revocation{Device: t.Name, Epoch: epoch, At: c.now().Unix()})
	if err != nil {
		return wire.Status{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return c.status(ctx, t, http.MethodPost, "/v1/revoke", body)
}

// status is what all of these are answered with.
func (c *Client) status(ctx context.Context, t Target, method, path string, send []byte) (wire.Status, error) {
	req, q, err := c.query(ctx, t, method, path, send)
	if err != nil {
		return wire.Status{}, err
	}
	body, err := c.do(req, t)
	if err != nil {
		return wire.Status{}, err
	}
	s, err := wire.OpenStatus(body, t.Key, q)
	if err != nil {
		return wire.Status{}, opened(err)
	}
	return s, nil
}

func (c *Client) query(ctx context.Context, t Target, method, path string, body []byte) (*http.Request, wire.Query, error) {
	now := c.now()
	q := wire.Query{Device: t.Name, Path: path, At: now.Unix(), ExpiresAt: now.Add(queryLife).Unix(), Nonce: rand.Text()}
	header, err := wire.SignQuery(c.key, q)
	if err != nil {
		return nil, q, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, q, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	req.Header.Set(wire.QueryHeader, header)
	return req, q, nil
}

func (c *Client) answer(req *http.Request, t Target, deed, callHash string) (wire.Answer, error) {
	body, err := c.do(req, t)
	if err != nil {
		return wire.Answer{}, err
	}
	a, err := wire.OpenAnswer(body, t.Key, t.Name, deed)
	if err != nil {
		return wire.Answer{}, opened(err)
	}
	// Only what ran, or runs, must be our call; a refusal may come before the device has read it.
	switch a.State {
	case wire.Refused, wire.NotSeen:
	case wire.Succeeded, wire.Failed, wire.Running, wire.Unknown:
		if a.CallHash != callHash {
			return wire.Answer{}, fmt.Errorf("%w: the deed stands for another call there", ErrNoAnswer)
		}
	default:
		return wire.Answer{}, fmt.Errorf("%w: state %q is not known", ErrNoAnswer, a.State)
	}
	return a, nil
}

// Refusal of a device that answered and did not listen; nil when the error is something else.
func Refusal(err error) *wire.RefusedError {
	var r *wire.RefusedError
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// deaf tells whether a device did not listen for want of a manifest that the cluster may bring.
func deaf(err error) bool {
	r := Refusal(err)
	return r != nil && (r.Reason == wire.NoManifest || r.Reason == wire.BadSignature)
}

// opened sorts what was wrong with an envelope: one that the device's key did not sign is somebody else's; any other is the device's and
// teaches nothing about the deed.
func opened(err error) error {
	if errors.Is(err, dsse.ErrRefused) {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

func (c *Client) do(req *http.Request, t Target) ([]byte, error) {
	res, err := c.ways.to(t).Do(req)
	if err != nil {
		var none *noWayError
		var op *net.OpError
		if errors.As(err, &none) || errors.As(err, &op) && op.Op == "dial" {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	defer func() { _ = res.Body.Close() }() // read-only
	body, err := io.ReadAll(io.LimitReader(res.Body, dsse.MaxEnvelope+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: HTTP %d: %s", ErrNoAnswer, res.StatusCode, strings.TrimSpace(string(body[:min(len(body), 200)])))
	}
	return body, nil
}
