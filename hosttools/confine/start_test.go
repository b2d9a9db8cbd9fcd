package confine

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nisse.io/nisse/hosttools/confine/shim"
)

// A shim without an order becomes nothing, and nothing of the program was made ready before it found that out: an import too many in package
// shim, and every call waits for hundreds of packages.
func TestShimGoesFirst(t *testing.T) {
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Args, c.Env = []string{shim.Name}, []string{"GODEBUG=inittrace=1"}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Fatalf("%v: %s", err, out)
	}
	if trace := string(out); !strings.Contains(trace, "init syscall ") || strings.Contains(trace, "init os ") || strings.Contains(trace, "init golang.org/") {
		t.Errorf("these went first:\n%s", trace)
	}
}
