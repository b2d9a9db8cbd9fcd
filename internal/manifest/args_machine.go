package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// PkgSearchArgs of pkg.search.
type PkgSearchArgs struct {
	// Query is a part of a package's name.
	Query string `json:"query"`
}

// PkgInstallArgs of pkg.install.
type PkgInstallArgs struct {
	// Names of packages, each exactly as the package manager knows it; it chooses the version.
	Names          []string `json:"names"`
	TimeoutSeconds int      `json:"timeoutSeconds,omitempty"`
}

// MaxPackages of one call.
const MaxPackages = 50

// packageName that no package manager takes for an option, a version (=), a release or path (/), a group (@), an architecture (:), a
// pattern (*, ?, [, ~) or, for a trailing -, an order to remove. What is left of apt's own magic is met where apt is run.
var packageName = lazy(`^[A-Za-z0-9]([A-Za-z0-9+._-]{0,126}[A-Za-z0-9+])?$`)

func (a PkgSearchArgs) check() error {
	if !packageName.MatchString(a.Query) {
		return fmt.Errorf("query %q: want a part of a package's name (letters, digits, + . _ -)", a.Query)
	}
	return nil
}

func (a PkgInstallArgs) check() error {
	if len(a.Names) == 0 || len(a.Names) > MaxPackages {
		return fmt.Errorf("%d names: want 1 to %d", len(a.Names), MaxPackages)
	}
	for i, n := range a.Names {
		if !packageName.MatchString(n) {
			return fmt.Errorf("name %q: want the exact name of a package, without version, release, architecture or path", n)
		}
		if slices.Contains(a.Names[:i], n) {
			return fmt.Errorf("name %q stands there twice", n)
		}
	}
	return checkTimeout(a.TimeoutSeconds)
}

// ProcListArgs of proc.list.
type ProcListArgs struct {
	// Name of the program as the kernel has it (15 bytes at most); all when empty.
	Name string `json:"name,omitempty"`
}

// ProcKillArgs of proc.kill.
type ProcKillArgs struct {
	PID int `json:"pid"`
	// Start of the process, from proc.list: numbers of processes are used again.
	Start string `json:"start"`
	// Signal by name; TERM when empty.
	Signal string `json:"signal,omitempty"`
}

// SignalOf the call.
func (a ProcKillArgs) SignalOf() string {
	if a.Signal == "" {
		return "TERM"
	}
	return a.Signal
}

var processStart = lazy(`^[0-9]{1,18}@[0-9a-f]{8}$`)

func (a ProcListArgs) check() error {
	if len(a.Name) > 15 || strings.ContainsRune(a.Name, 0) {
		return fmt.Errorf("name %q: the kernel keeps 15 bytes of a name", a.Name)
	}
	return nil
}

func (a ProcKillArgs) check() error {
	switch {
	case a.PID < 2 || a.PID > 1<<22:
		return fmt.Errorf("pid %d: want 2 to %d", a.PID, 1<<22)
	case !processStart.MatchString(a.Start):
		return fmt.Errorf("start %q: copy it from proc.list", a.Start)
	case !slices.Contains(Signals, a.SignalOf()):
		return fmt.Errorf("signal %q: known are %s", a.Signal, strings.Join(Signals, ", "))
	}
	return nil
}

// ContainerListArgs of docker.container.list.
type ContainerListArgs struct{}

// ContainerLogsArgs of docker.container.logs.
type ContainerLogsArgs struct {
	// Container by name.
	Container string `json:"container"`
	// Tail is how many lines from the end; DefaultTail when 0.
	Tail int `json:"tail,omitempty"`
}

// ContainerExecArgs of docker.container.exec.
type ContainerExecArgs struct {
	Container string `json:"container"`
	// ID of the container, from docker.container.list, when it must be that very one and no successor of the same name.
	ID             string   `json:"id,omitempty"`
	Argv           []string `json:"argv"`
	TimeoutSeconds int      `json:"timeoutSeconds,omitempty"`
}

// Lines of a container's log.
const (
	DefaultTail = 200
	MaxTail     = 10_000
)

var (
	containerName = lazy(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	containerID   = lazy(`^[0-9a-f]{64}$`)
)

func (a ContainerListArgs) check() error { return nil }

func checkContainer(name string) error {
	if !containerName.MatchString(name) {
		return fmt.Errorf("container %q: want its name", name)
	}
	return nil
}

func (a ContainerLogsArgs) check() error {
	if a.Tail < 0 || a.Tail > MaxTail {
		return fmt.Errorf("tail %d: want 1 to %d, or none", a.Tail, MaxTail)
	}
	return checkContainer(a.Container)
}

func (a ContainerExecArgs) check() error {
	if a.ID != "" && !containerID.MatchString(a.ID) {
		return fmt.Errorf("id %q: want the whole ID of a container", a.ID)
	}
	return errors.Join(checkContainer(a.Container), ExecArgs{Argv: a.Argv, TimeoutSeconds: a.TimeoutSeconds}.check())
}

// CaptureArgs of display.capture.
type CaptureArgs struct{}

// ClipboardReadArgs of clipboard.read.
type ClipboardReadArgs struct{}

// ClipboardWriteArgs of clipboard.write.
type ClipboardWriteArgs struct {
	// Content in UTF-8.
	Content string `json:"content"`
}

// MaxClipboard in bytes of one clipboard.write.
const MaxClipboard = 128 << 10

func (a CaptureArgs) check() error { return nil }

func (a ClipboardReadArgs) check() error { return nil }

func (a ClipboardWriteArgs) check() error {
	if a.Content == "" || len(a.Content) > MaxClipboard || !utf8.ValidString(a.Content) || strings.ContainsRune(a.Content, 0) {
		return fmt.Errorf("content: want 1 to %d bytes of text without NUL", MaxClipboard)
	}
	return nil
}
