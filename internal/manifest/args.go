package manifest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"nisse.io/nisse/internal/canonical"
)

// MaxPath in bytes, Linux's PATH_MAX.
const MaxPath = 4096

// ReadArgs of fs.read.
type ReadArgs struct {
	Path string `json:"path"`
	// Offset in bytes from the start.
	Offset int64 `json:"offset,omitempty"`
	// Limit in bytes; the manifest's outputBytes when 0.
	Limit int64 `json:"limit,omitempty"`
}

// PathArgs of fs.list and fs.stat.
type PathArgs struct {
	Path string `json:"path"`
}

// WriteArgs of fs.write: the file is replaced as a whole, atomically.
type WriteArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	// Encoding of content: utf-8 (when absent) or base64.
	Encoding string `json:"encoding,omitempty"`
}

// Bytes of the content.
func (a WriteArgs) Bytes() ([]byte, error) {
	switch a.Encoding {
	case "", "utf-8":
		return []byte(a.Content), nil
	case "base64":
		b, err := base64.StdEncoding.Strict().DecodeString(a.Content)
		if err != nil {
			return nil, errors.New("content is not base64")
		}
		return b, nil
	}
	return nil, fmt.Errorf("encoding %q: want utf-8 or base64", a.Encoding)
}

// ExecArgs of exec.
type ExecArgs struct {
	Argv []string `json:"argv"`
	// TimeoutSeconds; the command's own when 0, never more than it.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// ParseArgs decodes canonical arguments of a capability into its type (ReadArgs, PathArgs, WriteArgs, ExecArgs, GitStatusArgs …),
// refusing what is not canonical, unknown fields, and what no rule could allow.
func ParseArgs(capability, args string) (any, error) {
	read, ok := readers[capability]
	if !ok {
		return nil, fmt.Errorf("capability %q is not known", capability)
	}
	if err := exactFields(capability, args); err != nil {
		return nil, err
	}
	a, err := read(args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", capability, err)
	}
	return a, nil
}

// arguments of a capability.
type arguments interface {
	// check what a schema cannot say, or says to models alone.
	check() error
}

// reader of canonical JSON into one type of arguments.
func reader[T arguments](text string) (any, error) {
	var a T
	if err := canonical.Strict([]byte(text), &a); err != nil {
		return nil, err
	}
	return a, a.check()
}

var readers = map[string]func(string) (any, error){
	FSRead: reader[ReadArgs], FSList: reader[PathArgs], FSStat: reader[PathArgs], FSWrite: reader[WriteArgs], Exec: reader[ExecArgs],
	GitStatus: reader[GitStatusArgs], GitCommit: reader[GitCommitArgs], GitClone: reader[GitCloneArgs], GitPush: reader[GitPushArgs],
	PkgSearch: reader[PkgSearchArgs], PkgInstall: reader[PkgInstallArgs],
	ProcList: reader[ProcListArgs], ProcKill: reader[ProcKillArgs],
	DockerList: reader[ContainerListArgs], DockerLogs: reader[ContainerLogsArgs], DockerExec: reader[ContainerExecArgs],
	DisplayCapture: reader[CaptureArgs], ClipboardRead: reader[ClipboardReadArgs], ClipboardWrite: reader[ClipboardWriteArgs],
}

// fields of each capability's arguments.
var fields = map[string][]string{
	FSRead:         {"path", "offset", "limit"},
	FSList:         {"path"},
	FSStat:         {"path"},
	FSWrite:        {"path", "content", "encoding"},
	Exec:           {"argv", "timeoutSeconds"},
	GitStatus:      {"path"},
	GitCommit:      {"path", "files", "message", "author"},
	GitClone:       {"url", "path", "branch", "depth", "timeoutSeconds"},
	GitPush:        {"path", "url", "branch", "commit", "timeoutSeconds"},
	PkgSearch:      {"query"},
	PkgInstall:     {"names", "timeoutSeconds"},
	ProcList:       {"name"},
	ProcKill:       {"pid", "start", "signal"},
	DockerList:     {},
	DockerLogs:     {"container", "tail"},
	DockerExec:     {"container", "id", "argv", "timeoutSeconds"},
	DisplayCapture: {},
	ClipboardRead:  {},
	ClipboardWrite: {"content"},
}

func (a ReadArgs) check() error {
	if a.Offset < 0 || a.Limit < 0 {
		return errors.New("offset and limit may not be negative")
	}
	return checkPath(a.Path)
}

func (a PathArgs) check() error { return checkPath(a.Path) }

func (a WriteArgs) check() error {
	if _, err := a.Bytes(); err != nil {
		return err
	}
	return checkPath(a.Path)
}

func (a ExecArgs) check() error {
	if len(a.Argv) == 0 || a.TimeoutSeconds < 0 {
		return errors.New("argv is empty or timeoutSeconds negative")
	}
	for _, s := range a.Argv {
		if strings.ContainsRune(s, 0) {
			return errors.New("an argument contains a NUL byte")
		}
	}
	return nil
}

// exactFields refuses what encoding/json would let pass: a field whose name differs in case, so that {"Path":…,"path":…} could be shown
// as one path and run as another, and null, which it takes for absent.
func exactFields(capability, args string) error {
	known := fields[capability]
	if !canonical.Equal([]byte(args)) {
		return fmt.Errorf("%s: arguments are not canonical JSON", capability)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &got); err != nil {
		return fmt.Errorf("%s: arguments must be an object: %w", capability, err)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown field %q", capability, name)
		}
		if string(got[name]) == "null" {
			return fmt.Errorf("%s: field %q is null", capability, name)
		}
	}
	return nil
}

func checkPath(p string) error {
	if len(p) > MaxPath {
		return fmt.Errorf("path of %d bytes is longer than %d", len(p), MaxPath)
	}
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %q must be absolute and clean (no .., no //, no trailing /)", p)
	}
	return nil
}

// checkTimeout that a call asks for.
func checkTimeout(seconds int) error {
	if seconds < 0 || seconds > MaxTimeoutSeconds {
		return fmt.Errorf("timeoutSeconds %d: want 1 to %d, or none", seconds, MaxTimeoutSeconds)
	}
	return nil
}
