package capability

import (
	"context"
	"fmt"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/clipboard"
	"nisse.io/nisse/hosttools/display"
	"nisse.io/nisse/internal/manifest"
)

func (r Runner) capture(ctx context.Context, v manifest.Verdict) (func(int) any, error) {
	c, err := r.asUser(v)
	if err != nil {
		return nil, err
	}
	m, err := display.Capture(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, ok := display.Fit(m, r.Manifest.Limits.OutputBytes); !ok {
		return nil, fmt.Errorf("no picture of the screen fits into the manifest's outputBytes, %d; a few hundred thousand show something", r.Manifest.Limits.OutputBytes)
	}
	return func(keep int) any {
		p, _ := display.Fit(m, keep)
		return wire.CaptureResult{Image: p.Base64, Width: p.Width, Height: p.Height, ScreenWidth: m.Bounds().Dx(), ScreenHeight: m.Bounds().Dy()}
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
