package dispatch

import (
	"context"
	"strings"
	"time"

	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/internal/sanitize"
)

const (
	// lookEvery is how often a device is asked what a call has written while somebody waits for it.
	lookEvery = 2 * time.Second
	// maxLine of progress, in runes.
	maxLine = 200
)

type watcherKey struct{}

// Watch has tell called with the newest line that the context's call has written, whenever that is another than before. It is not called
// any more once the call has been answered. The line is what a program on a machine chose to write: nothing is decided by it, and it is
// kept nowhere.
func Watch(ctx context.Context, tell func(line string)) context.Context {
	return context.WithValue(ctx, watcherKey{}, tell)
}

// follow a deed for who watches, until stop is called. A device that does not answer is asked again: lost progress is no error.
func (d *Dispatcher) follow(ctx context.Context, t devices.Target, deed, callHash string) (stop func()) {
	tell, watched := ctx.Value(watcherKey{}).(func(string))
	if !watched {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		said := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			text, err := d.Devices.Progress(ctx, t, deed, callHash)
			if err != nil || ctx.Err() != nil {
				continue
			}
			if line := newest(text); line != "" && line != said {
				said = line
				tell(line)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// newest line that says something, as untrusted text is shown. Programs that draw bars end their lines with a carriage return.
func newest(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if line := sanitize.Line(lines[i], maxLine); line != "" {
			return line
		}
	}
	return ""
}
