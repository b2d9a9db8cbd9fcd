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

// ParseArgs decodes canonical arguments of a capability into its type (ReadArgs, PathArgs, WriteArgs, ExecArgs), refusing what is not
// canonical, unknown fields, and what no rule could allow.
func ParseArgs(capability, args string) (any, error) {
	if err := exactFields(capability, args); err != nil {
		return nil, err
	}
	switch capability {
	case FSRead:
		var a ReadArgs
		if err := strict([]byte(args), &a); err != nil {
			return nil, fmt.Errorf("%s: %w", capability, err)
		}
		if a.Offset < 0 || a.Limit < 0 {
			return nil, fmt.Errorf("%s: offset and limit may not be negative", capability)
		}
		return a, checkPath(capability, a.Path)
	case FSList, FSStat:
		var a PathArgs
		if err := strict([]byte(args), &a); err != nil {
			return nil, fmt.Errorf("%s: %w", capability, err)
		}
		return a, checkPath(capability, a.Path)
	case FSWrite:
		var a WriteArgs
		if err := strict([]byte(args), &a); err != nil {
			return nil, fmt.Errorf("%s: %w", capability, err)
		}
		if _, err := a.Bytes(); err != nil {
			return nil, fmt.Errorf("%s: %w", capability, err)
		}
		return a, checkPath(capability, a.Path)
	case Exec:
		var a ExecArgs
		if err := strict([]byte(args), &a); err != nil {
			return nil, fmt.Errorf("%s: %w", capability, err)
		}
		if len(a.Argv) == 0 || a.TimeoutSeconds < 0 {
			return nil, fmt.Errorf("%s: argv is empty or timeoutSeconds negative", capability)
		}
		for _, s := range a.Argv {
			if strings.ContainsRune(s, 0) {
				return nil, fmt.Errorf("%s: an argument contains a NUL byte", capability)
			}
		}
		return a, nil
	}
	return nil, fmt.Errorf("capability %q is not known", capability)
}

// fields of each capability's arguments.
var fields = map[string][]string{
	FSRead:  {"path", "offset", "limit"},
	FSList:  {"path"},
	FSStat:  {"path"},
	FSWrite: {"path", "content", "encoding"},
	Exec:    {"argv", "timeoutSeconds"},
}

// exactFields refuses what encoding/json would let pass: a field whose name differs in case, so that {"Path":…,"path":…} could be shown
// as one path and run as another, and null, which it takes for absent.
func exactFields(capability, args string) error {
	known, ok := fields[capability]
	if !ok {
		return fmt.Errorf("capability %q is not known", capability)
	}
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

func checkPath(capability, p string) error {
	if len(p) > MaxPath {
		return fmt.Errorf("%s: path of %d bytes is longer than %d", capability, len(p), MaxPath)
	}
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%s: path %q must be absolute and clean (no .., no //, no trailing /)", capability, p)
	}
	return nil
}
