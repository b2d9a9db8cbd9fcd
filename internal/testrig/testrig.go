// Package testrig has what tests of many packages need: to wait for a condition, to run beside each
// other, and to be a program that does not end by itself.
package testrig

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// patience of Until: what takes longer will not come, also on a machine that has much else to do.
const patience = 30 * time.Second

// Until waits for a condition, and fails the test when it does not come.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !within(ctx, ok) {
		t.Fatalf("waited in vain for %s", what)
	}
}

func within(ctx context.Context, ok func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// Abreast lets n tests of a binary run beside each other, unless go test is told another number (-parallel): for tests that wait more than
// they compute, for which the number of processors is too few. It is called in TestMain.
func Abreast(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // testing has the flag
	}
}

// Hang until somebody ends the process. It is for the helper programs of tests, whose end is what is tested.
func Hang() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	<-ended
}
