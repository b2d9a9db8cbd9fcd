package stack

import (
	"testing"

	"nisse.io/nisse/internal/testrig"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/test/apitest"
)

// abreast is how many stacks run beside each other.
const abreast = 3

// Main runs the tests of a package that starts stacks:
//
//	func TestMain(m *testing.M) { stack.Main(m) }
func Main(m *testing.M) {
	testrig.Abreast(abreast)
	apitest.Main(withHome{m}, cleanBinaries)
}

// withHome ends the shared homeserver when the tests have ended.
type withHome struct{ m *testing.M }

func (w withHome) Run() int { return homeserver.Main(w.m) }
