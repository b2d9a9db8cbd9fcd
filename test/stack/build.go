package stack

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"nisse.io/nisse/test/apitest"
)

// Binaries is the environment variable that names a directory of components that were built already, with crash points in.
const Binaries = "NISSE_STACK_BINARIES"

var (
	buildOnce sync.Once
	// binaries is where the components are.
	binaries string
	built    bool
	buildErr error
)

// build compiles the components once a test process, unless somebody has done so for all of them.
func build(t testing.TB) {
	t.Helper()
	buildOnce.Do(func() {
		if buildErr = seeSources(); buildErr != nil {
			return
		}
		if binaries = os.Getenv(Binaries); binaries != "" {
			return
		}
		if binaries, buildErr = os.MkdirTemp("", "nisse-stack-"); buildErr != nil {
			return
		}
		built = true
		args := []string{"build", "-tags", "goolm crashrig", "-o", binaries + "/"}
		for _, c := range Components {
			args = append(args, "./cmd/"+c)
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = apitest.Path()
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = fmt.Errorf("build the components: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
}

// seeSources reads the directories of the components' source. go test takes an earlier result when nothing has changed that the test
// imports or looked at, and a stack imports next to nothing of what it runs.
func seeSources() error {
	for _, room := range []string{"agentruntime", "api", "broker", "cmd", "config", "controllers", "device", "gateway", "hack/homeserver", "hosttools", "internal"} {
		err := filepath.WalkDir(apitest.Path(room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			dir, err := os.Open(path) // what is opened is remembered with the times of all that it holds
			if err != nil {
				return err
			}
			return dir.Close()
		})
		if err != nil {
			return fmt.Errorf("see what the components are made of: %w", err)
		}
	}
	return nil
}

// cleanBinaries removes what build made.
func cleanBinaries() {
	if built {
		_ = os.RemoveAll(binaries)
	}
}
