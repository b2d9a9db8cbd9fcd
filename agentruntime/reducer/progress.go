package reducer

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
)

// progress is one line about a call for the item's progress message.
func progress(c Call, r doors.ToolResult) string {
	var b strings.Builder
	switch r.Status {
	case doors.Done:
		b.WriteString("✓ ")
	case doors.Pending:
		b.WriteString("⏳ ")
	default:
		b.WriteString("✗ ")
	}
	args := map[string]json.RawMessage{}
	_ = json.Unmarshal([]byte(c.Args), &args) // arguments that do not read are left out of the line
	tool := c.Tool
	var device string
	if json.Unmarshal(args["device"], &device) == nil && device != "" {
		delete(args, "device")
		tool = sanitize.Line(device, 40) + " " + strings.Replace(tool, "_", ".", 1)
	}
	b.WriteString(tool)
	for _, k := range slices.Sorted(maps.Keys(args)) {
		b.WriteString(" " + sanitize.Line(k, 24) + "=" + value(args[k]))
	}
	if r.Status != doors.Done {
		b.WriteString(": " + r.Status)
		if r.Message != "" {
			b.WriteString(", " + r.Message)
		} else if r.Reason != "" {
			b.WriteString(", " + r.Reason)
		}
	}
	return sanitize.Line(b.String(), maxProgress)
}

func value(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if !strings.ContainsAny(s, " \"`\n\t") {
			return sanitize.Line(s, 80)
		}
		return sanitize.Quote(sanitize.Line(s, 80))
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "…"
	}
	return sanitize.Line(b.String(), 80)
}
