package homeserver

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the one server that tests of a binary use together.
var shared struct {
	sync.Mutex
	main   bool // Main is running
	server *Server
	dir    string
	err    error
}

// Main runs a package's tests and then ends the server that they shared:
//
//	func TestMain(m *testing.M) { os.Exit(homeserver.Main(m)) }
func Main(m *testing.M) int {
	shared.Lock()
	shared.main = true
	shared.Unlock()

	code := m.Run()

	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.end((*os.Process).Kill); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if shared.dir != "" {
		if err := os.RemoveAll(shared.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared is a server with default options that all tests of the binary use, which saves each of them two seconds. Tests
// must choose names of users and rooms that no other test has, and must not stop it. It wants Main in TestMain.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("homeserver.Shared wants this in the package's tests: func TestMain(m *testing.M) { os.Exit(homeserver.Main(m)) }")
	}
	if shared.server == nil && shared.err == nil {
		if shared.dir, shared.err = os.MkdirTemp("", "nisse-homeserver-"); shared.err == nil {
			shared.server, shared.err = start(shared.dir, Options{})
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}
