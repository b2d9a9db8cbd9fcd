// Package program finds the programs that capabilities are done with and runs them through package command, so that a failure says in
// one sentence what failed and why.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/internal/sanitize"
)

var (
	// ErrMissing is wrapped when this machine lacks what a capability needs. Nothing was done.
	ErrMissing = errors.New("this machine cannot do that")
	// ErrRefused is wrapped when what a call met on the machine may not be touched that way. Nothing was done.
	ErrRefused = errors.New("refused")
)

// Path that programs are looked for in, whatever the daemon or the manifest has in its environment.
var Path = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Find the first of several programs that is installed.
func Find(names ...string) (string, error) {
	for _, n := range names {
		for _, dir := range Path {
			file := filepath.Join(dir, n)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%w: it has no %s; install it", ErrMissing, strings.Join(names, " and no "))
}

// Failure of a program that ran.
type Failure struct {
	Argv   []string
	Result command.Result
	// Cause of the context's end, when it ended; nil otherwise.
	Cause error
}

// mostWords of a program's complaint in an error.
const mostWords = 1000

func (f *Failure) Error() string {
	name := filepath.Base(f.Argv[0])
	how := fmt.Sprintf("%s exited with code %d", name, f.Result.ExitCode)
	switch {
	case f.Result.TimedOut || errors.Is(f.Cause, context.DeadlineExceeded):
		how = name + " was killed for the time it took"
	case f.Cause != nil:
		how = fmt.Sprintf("%s was killed because %s", name, f.Cause)
	case f.Result.Signal != "":
		how = fmt.Sprintf("%s was ended by a signal: %s", name, f.Result.Signal)
	}
	words := strings.TrimSpace(f.Result.Stderr.Text())
	if words == "" {
		words = strings.TrimSpace(f.Result.Stdout.Text())
	}
	if words == "" {
		return how
	}
	return how + ": " + sanitize.Line(strings.ReplaceAll(words, "\n", "; "), mostWords)
}

func (f *Failure) Unwrap() error { return f.Cause }

// Run a program. The error is a *Failure when it ran and did not succeed; its result is returned all the same.
func Run(ctx context.Context, c command.Command) (command.Result, error) {
	if err := context.Cause(ctx); err != nil {
		return command.Result{}, err
	}
	r, err := command.Run(ctx, c)
	if err != nil {
		return r, err
	}
	if r.ExitCode != 0 || r.TimedOut || r.Signal != "" {
		return r, &Failure{Argv: c.Argv, Result: r, Cause: context.Cause(ctx)}
	}
	return r, nil
}

// Env of a command with some variables set. The last of one name counts, and only it is kept.
func Env(base []string, more ...string) []string {
	if base == nil {
		base = command.Environment
	}
	all := append(append([]string{}, base...), more...)
	var env []string
	for i, v := range all {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(all[i+1:], func(later string) bool { return strings.HasPrefix(later, name+"=") }) {
			env = append(env, v)
		}
	}
	return env
}

// Variable of an environment; empty when it is not set.
func Variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}
