// Package clipboard reads and replaces the text in the operator's clipboard, by the programs that the machine has for it.
package clipboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/display"
	"nisse.io/nisse/hosttools/program"
)

// tool that reads a clipboard, and one that owns it until another program does. Owners are told to stay where they were started: they
// would be lost to whoever must end them.
type tool struct{ read, own []string }

// One for each session. xsel is none for X11: it ends, and the text with it, when who reads a long one goes away at the wrong moment.
var tools = map[display.Session]tool{
	display.Wayland: {read: []string{"wl-paste", "--no-newline", "--type", "text"}, own: []string{"wl-copy", "--foreground", "--type", "text/plain"}},
	display.X11: {read: []string{"xclip", "-selection", "clipboard", "-target", "UTF8_STRING", "-out"},
		own: []string{"xclip", "-quiet", "-selection", "clipboard", "-target", "UTF8_STRING", "-in"}},
}

// find the tool of the environment's session, with absolute paths.
func find(env []string) (tool, display.Session, error) {
	s, err := display.Of(env)
	if err != nil {
		return tool{}, "", err
	}
	t := tools[s]
	read, err := program.Find(t.read[0])
	if err != nil {
		return tool{}, "", err
	}
	own, err := program.Find(t.own[0])
	if err != nil {
		return tool{}, "", err
	}
	return tool{read: append([]string{read}, t.read[1:]...), own: append([]string{own}, t.own[1:]...)}, s, nil
}

// Probe tells how the clipboard is reached here.
func Probe(env []string) (string, error) {
	t, s, err := find(env)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s by %s", s, t.read[0]), nil
}

// Read the text of the clipboard.
func Read(ctx context.Context, c command.Command) (command.Output, error) {
	t, _, err := find(c.Env)
	if err != nil {
		return command.Output{}, err
	}
	return t.text(ctx, c)
}

// text of the clipboard. Its owner may end, or hang, after it was asked, and X tells nobody: who asked would wait for ever. So it is asked
// again after a while, and each time it has longer to answer, for a long text may take long.
func (t tool) text(ctx context.Context, c command.Command) (command.Output, error) {
	for end, wait := time.Now().Add(c.Timeout), patience; ; wait *= 2 {
		r, err := t.look(ctx, c, min(wait, time.Until(end)))
		if !r.TimedOut || time.Until(end) <= 0 {
			return r.Stdout, err
		}
	}
}

// look once.
func (t tool) look(ctx context.Context, c command.Command, wait time.Duration) (command.Result, error) {
	c.Argv, c.Stdin, c.Timeout = t.read, nil, wait
	return program.Run(ctx, c)
}

const (
	// patience with the owner that is asked first.
	patience = time.Second
	// held is how long a text stays in the clipboard at most, when nobody replaces it.
	held = 24 * time.Hour
	// again is how often it is looked whether the text is in the clipboard.
	again = 20 * time.Millisecond
)

// Write replaces the clipboard's text. A clipboard is no store: a program owns it and hands it out. That program runs on when Write
// has returned, until another one takes the clipboard over, or the device ends. Write returns when the text can be read.
func Write(ctx context.Context, c command.Command, text []byte) error {
	t, _, err := find(c.Env)
	if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err // else what is in the clipboard would be lost, and nothing put in its place
	}
	owner := c
	owner.Argv, owner.Stdin, owner.Timeout, owner.Keep = t.own, text, held, 4<<10
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		defer end()
		_, err := program.Run(life, owner)
		ended <- err
	}()
	look := c
	look.Keep = len(text) + 1
	tick := time.NewTicker(again)
	defer tick.Stop()
	for wait := patience; ; {
		// Until the new owner has it, the old one answers, or does not: see text.
		r, err := t.look(ctx, look, wait)
		if err == nil && r.Stdout.Missing() == 0 && bytes.Equal(r.Stdout.Bytes(), text) {
			return nil
		}
		if r.TimedOut {
			wait = min(2*wait, c.Timeout)
		}
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("another program took the clipboard at once")
			}
			return err
		case <-ctx.Done():
			end() // and with it the owner
			return fmt.Errorf("the clipboard did not take the text in time: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
