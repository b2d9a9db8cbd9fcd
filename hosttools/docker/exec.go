package docker

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// Logs of a container: the last lines of both streams. What a container with a terminal wrote is one stream.
func (e Engine) Logs(ctx context.Context, name string, tail, keep int) (stdout, stderr command.Output, err error) {
	c, err := e.find(ctx, name, "")
	if err != nil {
		return stdout, stderr, err
	}
	r, err := e.do(ctx, http.MethodGet, "/containers/"+c.id+"/logs?stdout=true&stderr=true&tail="+strconv.Itoa(tail), nil)
	if err != nil {
		return stdout, stderr, err
	}
	defer r.Body.Close()
	return streams(r.Body, c.tty, keep)
}

// Ran command.
type Ran struct {
	Container string
	// ExitCode is meaningless when TimedOut.
	ExitCode int
	TimedOut bool
	// Left tells that nobody listens to the command any more and that it could not be ended: it may still run in the container.
	Left           bool
	Stdout, Stderr command.Output
	// Cut is why its output is not all there was; nil when it is.
	Cut error
}

// Exec runs a command in the container of this name, and of this ID when it is not empty: no shell, no terminal, no input, no
// privileges and no environment beside the container's own. When ctx ends, what it started is killed as far as this machine shows it.
// An error that wraps command.ErrUnproven means that the command may have run, or may run yet.
func (e Engine) Exec(ctx context.Context, name, id string, argv []string, keep int) (Ran, error) {
	c, err := e.find(ctx, name, id)
	if err != nil {
		return Ran{}, err
	}
	if !c.running {
		return Ran{}, fmt.Errorf("%w: container %s does not run", program.ErrRefused, name)
	}
	var made struct {
		ID string `json:"Id"`
	}
	order := struct {
		AttachStdin, AttachStdout, AttachStderr, Tty, Privileged bool
		Cmd                                                      []string
	}{AttachStdout: true, AttachStderr: true, Cmd: argv}
	if err := e.ask(ctx, http.MethodPost, "/containers/"+c.id+"/exec", order, &made); err != nil {
		return Ran{}, err
	}
	if !isID(made.ID) {
		return Ran{}, errors.New("docker: the answer names no command")
	}
	ran := Ran{Container: c.id}
	r, err := e.do(ctx, http.MethodPost, "/exec/"+made.ID+"/start", struct{ Detach, Tty bool }{})
	if err == nil {
		defer r.Body.Close()
		ran.Stdout, ran.Stderr, err = streams(r.Body, false, keep)
	}
	return e.ended(ctx, ran, made.ID, err)
}

// ended tells how a command ended whose start was asked for and that nobody listens to any more, because of err if that is not nil. What
// the Engine does not say of it is not guessed.
func (e Engine) ended(ctx context.Context, ran Ran, id string, err error) (Ran, error) {
	if ctx.Err() != nil {
		// The Engine lets a command go on when nobody listens.
		if ran.TimedOut = errors.Is(ctx.Err(), context.DeadlineExceeded); !e.end(context.WithoutCancel(ctx), ran.Container, id) {
			ran.Left = true
			return ran, fmt.Errorf("%w: %w", command.ErrUnproven, ctx.Err())
		}
		return ran, nil
	}
	state, serr := e.state(ctx, id)
	var said *answered
	switch {
	case serr != nil:
		return ran, fmt.Errorf("%w: %w", command.ErrUnproven, errors.Join(err, serr))
	case errors.As(err, &said) && !state.Running:
		return ran, err // the Engine's own word that it did not start
	case state.over() && err != nil:
		ran.ExitCode, ran.Cut = *state.ExitCode, err
		return ran, nil
	case state.over():
		ran.ExitCode = *state.ExitCode
		return ran, nil
	case e.end(ctx, ran.Container, id):
		return ran, fmt.Errorf("it was killed, because nothing more was heard of it: %w", cmp.Or(err, errMute))
	}
	ran.Left = true
	return ran, fmt.Errorf("%w: it may still run in the container: %w", command.ErrUnproven, cmp.Or(err, errMute))
}

var errMute = errors.New("docker: the command closed its output and runs on")

// execState of a command in a container.
type execState struct {
	Running bool
	// ExitCode is there when it has ended, and only then: one that has not begun does not run either.
	ExitCode *int
	// PID of its first process, as this machine sees it.
	PID int `json:"Pid"`
}

func (s execState) over() bool { return !s.Running && s.ExitCode != nil }

func (e Engine) state(ctx context.Context, id string) (execState, error) {
	var s execState
	return s, e.get(ctx, "/exec/"+id+"/json", &s)
}

// patience with the Engine when the time of a call is up.
const patience = 3 * time.Second

// end a command that nobody listens to, and tell whether it has ended. The Engine cannot, so its processes are killed from here, where
// this machine shows them and this device may.
func (e Engine) end(ctx context.Context, container, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, err := e.state(ctx, id)
		if err != nil {
			return false
		}
		if s.over() {
			return true
		}
		killTree(container, s.PID)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// streams of the Engine: frames of one stream each, with a header of the stream's number, three zeros and the length; or, from a
// terminal, bytes as they are.
func streams(r io.Reader, tty bool, keep int) (stdout, stderr command.Output, err error) {
	out, errs := command.NewKeeper(keep), command.NewKeeper(keep)
	if tty {
		_, err = io.Copy(out, r)
		return out.Output(), errs.Output(), err
	}
	for {
		var head [8]byte
		if _, err = io.ReadFull(r, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			break
		}
		to := out
		switch head[0] {
		case 1:
		case 2:
			to = errs
		default:
			return out.Output(), errs.Output(), fmt.Errorf("docker: a frame of stream %d is not understood", head[0])
		}
		if _, err = io.CopyN(to, r, int64(binary.BigEndian.Uint32(head[4:]))); err != nil {
			break
		}
	}
	return out.Output(), errs.Output(), err
}
