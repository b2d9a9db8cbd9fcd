package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Keys of a keeping: of what was found, and of the order that the line began by. Every other key is the number of rows of a checkpoint.
const (
	KeyBroken = "broken"
	KeyAnchor = "anchor"
)

// Entry is a checkpoint in a keeping: the data of a ConfigMap, by the number of rows.
type Entry struct {
	Root string `json:"root"`
	// Line of the audit, when it was anchored anew.
	Line int64 `json:"line,omitempty"`
	// At in RFC 3339 by the manager's clock, and Now in Unix seconds by the device's.
	At  string `json:"at"`
	Now int64  `json:"now"`
	// Note as the device signed it.
	Note string `json:"note"`
}

// Broken is what was found, and the reply that it was found by.
type Broken struct {
	Finding
	At    string `json:"at"`
	Reply string `json:"reply"`
}

// Key of a checkpoint in a keeping; keys sort as rows do.
func Key(rows int64) string { return fmt.Sprintf("%019d", rows) }

// Keys of the checkpoints in a keeping, the newest last.
func Keys(data map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(key string) bool { return strings.Trim(key, "0123456789") != "" })
}

// ReadEntry of a keeping.
func ReadEntry(data map[string]string, key string) (Entry, Checkpoint, error) {
	var e Entry
	if err := json.Unmarshal([]byte(data[key]), &e); err != nil {
		return Entry{}, Checkpoint{}, fmt.Errorf("%s: %w", key, err)
	}
	rows, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return Entry{}, Checkpoint{}, fmt.Errorf("%s: %w", key, err)
	}
	root, err := ParseRoot(e.Root)
	if err != nil {
		return Entry{}, Checkpoint{}, fmt.Errorf("%s: %w", key, err)
	}
	return e, Checkpoint{Line: e.Line, Rows: rows, Root: root}, nil
}

// ReadBroken of a keeping; nil when nothing was found.
func ReadBroken(data map[string]string) (*Broken, error) {
	text := data[KeyBroken]
	if text == "" {
		return nil, nil
	}
	var b Broken
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return nil, fmt.Errorf("%s: %w", KeyBroken, err)
	}
	return &b, nil
}
