package stack

import (
	"flag"
	"testing"

	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/test/apitest"
)

// abreast is how many stacks run beside each other unless go test is told another number (-parallel): a stack waits more than it
// computes.
const abreast = "3"

// Main runs the tests of a package that starts stacks:
//
//	func TestMain(m *testing.M) { stack.Main(m) }
func Main(m *testing.M) {
	if err := flag.Set("test.parallel", abreast); err != nil {
		panic(err) // testing has the flag
	}
	apitest.Main(withHome{m}, cleanBinaries)
}

// withHome ends the shared homeserver when the tests have ended.
type withHome struct{ m *testing.M }

func (w withHome) Run() int { return homeserver.Main(w.m) }
