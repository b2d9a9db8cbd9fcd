package capability

import (
	"context"
	"fmt"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/clipboard"
	"nisse.io/nisse/hosttools/display"
	"nisse.io/nisse/internal/manifest"
)

// drawing is the right to hold a screen in memory: one call's at a time, for a large one has 140 MB.
var drawing = make(chan struct{}, 1)

func (r Runner) capture(ctx context.Context, v manifest.Verdict) (func(int) any, error) {
	c, err := r.asUser(v)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	select {
	case drawing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("another picture is being taken: %w", ctx.Err())
	}
	defer func() { <-drawing }()
	m, err := display.Capture(ctx, c)
	if err != nil {
		return nil, err
	}
	p, ok := display.Fit(m, r.Manifest.Limits.OutputBytes)
	if !ok {
		return nil, fmt.Errorf("no picture of the screen fits into the manifest's outputBytes, %d; a few hundred thousand show something", r.Manifest.Limits.OutputBytes)
	}
	width, height := m.Bounds().Dx(), m.Bounds().Dy()
	return func(keep int) any {
		drawing <- struct{}{}
		defer func() { <-drawing }()
		p, _ := p.Smaller(keep)
		return wire.CaptureResult{Image: p.Base64, Width: p.Width, Height: p.Height, ScreenWidth: width, ScreenHeight: height}
	}, nil
}

func (r Runner) clipboardRead(ctx context.Context, v manifest.Verdict) (func(int) any, error) {
	c, err := r.asUser(v)
	if err != nil {
		return nil, err
	}
	out, err := clipboard.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	return func(keep int) any {
		content, encoding, used := text(out.Head, keep, out.Total > int64(len(out.Head)))
		if out.Missing() == 0 {
			content, encoding, used = text(out.Bytes(), keep, false)
		}
		return wire.ClipboardReadResult{Content: content, Encoding: encoding, Size: out.Total, Truncated: int64(used) < out.Total}
	}, nil
}

func (r Runner) clipboardWrite(ctx context.Context, a manifest.ClipboardWriteArgs, v manifest.Verdict) (func(int) any, error) {
	c, err := r.asUser(v)
	if err != nil {
		return nil, err
	}
	if err := clipboard.Write(ctx, c, []byte(a.Content)); err != nil {
		return nil, err
	}
	return func(int) any { return wire.ClipboardWriteResult{Bytes: len(a.Content)} }, nil
}
