package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/testrig"
)

func init() {
	confine.Serve("stubborn", func(in []byte) ([]byte, error) {
		if err := os.WriteFile(string(in), []byte("written"), 0o600); err != nil {
			return nil, err
		}
		time.Sleep(time.Hour) // and no select, which Go would end as a deadlock
		return nil, nil
	})
	confine.Serve("failing", func([]byte) ([]byte, error) { return nil, errors.New("no") })
}

// A function that was begun and gives no answer may have done its work.
func TestCallsThatNobodyHeard(t *testing.T) {
	user := &confine.User{Name: "root"}
	if os.Getuid() != 0 {
		user = nil
	}
	file := filepath.Join(t.TempDir(), "written")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Call(ctx, user, "stubborn", []byte(file), time.Minute)
		done <- err
	}()
	testrig.Until(t, "its effect", func() bool { b, err := os.ReadFile(file); return err == nil && string(b) == "written" })
	cancel(errors.New("the test is over"))
	if err := <-done; !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "the test is over") {
		t.Errorf("one that was killed: %v", err)
	}
	if _, err := Call(t.Context(), user, "stubborn", []byte(file), 100*time.Millisecond); !errors.Is(err, ErrUnproven) {
		t.Errorf("one that took too long: %v", err)
	}
	if _, err := Call(t.Context(), user, "failing", nil, time.Minute); !errors.Is(err, ErrUnproven) {
		t.Errorf("one that ended without an answer: %v", err)
	}
	if _, err := Call(t.Context(), user, "stubborn", []byte(file), -time.Second); !errors.Is(err, ErrUnproven) {
		t.Errorf("one whose shim did not report in time: %v", err)
	}
}

// A shim that did not report in time may have become the program in the last moment.
func TestStartThatNobodyHeard(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	if r, err := Run(t.Context(), Command{Argv: []string{y.self, "act", "say", "a", "b"}, Timeout: -time.Second, Keep: 100, Confine: &y.c}); !errors.Is(err, ErrUnproven) {
		t.Errorf("got %+v, %v", r, err)
	}
}
