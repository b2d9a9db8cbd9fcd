package devices

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
)

// resolveTimeout of one question. A device reads the programs to hash them, and a person waits for the gate.
const resolveTimeout = 10 * time.Second

// Resolve asks what calls would run under a manifest. The answers are in the calls' order.
func (c *Client) Resolve(ctx context.Context, t Target, manifestDigest string, calls []wire.AskedCall) ([]wire.ResolvedCall, error) {
	now := c.now()
	asked := wire.Resolve{V: wire.Version, Device: t.Name, ManifestDigest: manifestDigest, Calls: calls, At: now.Unix(), ExpiresAt: now.Add(queryLife).Unix(), Nonce: rand.Text()}
	body, err := wire.SignResolve(c.key, asked)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+"/v1/resolve", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if body, err = c.do(req, t); err != nil {
		return nil, err
	}
	r, err := wire.OpenResolved(body, t.Key, asked)
	if err != nil {
		return nil, opened(err)
	}
	return r.Calls, nil
}

// Resolve asks a device what calls would run under its manifest m, and brings it that if it lacks it. Nothing runs, and nothing is recorded.
func (r *Registry) Resolve(ctx context.Context, d *v1alpha1.Device, m Signed, calls []wire.AskedCall) (resolved []wire.ResolvedCall, err error) {
	t, err := TargetOf(d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if !r.Holds(d.Name, m.Digest) {
		if err := r.Ready(ctx, d, m); err != nil {
			return nil, err
		}
	}
	ask := func() (err error) {
		asking, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		resolved, err = r.client.Resolve(asking, t, m.Digest, calls)
		return err
	}
	err = r.Heard(ctx, d, ask, m)
	if no := Refusal(err); no != nil && no.Reason == wire.OtherManifest { // it has lost it since it last told what it holds
		if err = r.Ready(ctx, d, m); err == nil {
			err = ask()
		}
	}
	if err == nil || Refusal(err) != nil {
		return resolved, err
	}
	if probe := r.Ready(ctx, d); probe != nil { // so that its condition and the sentence for people say since when
		return nil, probe
	}
	return nil, err
}
