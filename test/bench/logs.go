package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Line of a component's log that tells of a durable change.
type Line struct {
	At      time.Time `json:"ts"`
	Event   string    `json:"event"`
	Cause   string    `json:"cause"`
	Kind    string    `json:"kind"`
	Subject string    `json:"subject"`
	Source  string    `json:"source"`
	Intent  string    `json:"intent_id"`
}

// ReadLog returns a log's lines from an offset. What is no JSON, such as a runtime's last words, is left out.
func ReadLog(path string, from int64) ([]Line, int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, from, fmt.Errorf("read what a component wrote: %w", err)
	}
	b = b[from:]
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	var out []Line
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) == nil {
			out = append(out, l)
		}
	}
	return out, from + int64(len(b)), lines.Err()
}
