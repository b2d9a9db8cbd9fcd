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

var tools = map[display.Session][]tool{
	display.Wayland: {{read: []string{"wl-paste", "--no-newline", "--type", "text"}, own: []string{"wl-copy", "--foreground", "--type", "text/plain"}}},
	display.X11: {
		{read: []string{"xclip", "-selection", "clipboard", "-target", "UTF8_STRING", "-out"}, own: []string{"xclip", "-quiet", "-selection", "clipboard", "-target", "UTF8_STRING", "-in"}},
		{read: []string{"xsel", "--clipboard", "--output"}, own: []string{"xsel", "--clipboard", "--nodetach", "--input"}},
	},
}

// find the tool of the environment's session, with absolute paths.
func find(env []string) (tool, display.Session, error) {
	s, err := display.Of(env)
	if err != nil {
		return tool{}, "", err
	}
	var names []string
	for _, t := range tools[s] {
		read, rerr := program.Find(t.read[0])
		own, oerr := program.Find(t.own[0])
		if rerr == nil && oerr == nil {
			return tool{read: append([]string{read}, t.read[1:]...), own: append([]string{own}, t.own[1:]...)}, s, nil
		}
		names = append(names, t.read[0])
	}
	_, err = program.Find(names...)
	return tool{}, "", err
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

func (t tool) text(ctx context.Context, c command.Command) (command.Output, error) {
	c.Argv, c.Stdin = t.read, nil
	r, err := program.Run(ctx, c)
	return r.Stdout, err
}

const (
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
	for {
		if out, err := t.text(ctx, look); err == nil && out.Missing() == 0 && bytes.Equal(out.Bytes(), text) {
			return nil
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
