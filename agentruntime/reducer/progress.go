package reducer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
)

// useless is the line about an answer of the model that nothing can be done with.
func useless(problem string, again bool) string {
	if rest, ok := strings.CutPrefix(problem, "your answer"); ok { // it was written for the model
		problem = "the model's answer" + rest
	}
	if again {
		problem += " (asked again)"
	}
	return sanitize.Line("✗ "+problem, maxProgress)
}

// notRun is the line about a call that cannot be made as the model wrote it.
func notRun(tool, why string) string {
	if tool == "" {
		tool = "a call without a name"
	}
	return sanitize.Line("✗ "+tool+": "+strings.Replace(why, "not run: ", "not run, ", 1), maxProgress)
}

// progress is one line about a call for the item's progress message. text is what the tool returned, as it came.
func progress(c Call, r doors.ToolResult, text string) string {
	var b strings.Builder
	switch r.Status {
	case doors.Done:
		b.WriteString("✓ ")
	case doors.Pending:
		b.WriteString("⏳ ")
	default:
		b.WriteString("✗ ")
	}
	tool := named(c)
	if r.Status == doors.Done {
		b.WriteString(tool)
	} else { // however long the call, its reason is read
		b.WriteString(sanitize.Line(tool, maxProgress/2) + ": " + why(r))
	}
	line := sanitize.Line(b.String(), maxProgress)
	if len(text) > MaxResult || cut(r.Output) {
		line += " (cut)"
	}
	return line
}

// Underway is one line about a call that runs: the newest that it has written, which may say anything.
func Underway(c Call, newest string) string {
	return sanitize.Line("⏳ "+sanitize.Line(named(c), maxProgress/2)+": "+sanitize.Line(newest, maxProgress/2), maxProgress)
}

// named call: its device, its tool and its arguments.
func named(c Call) string {
	args := map[string]json.RawMessage{}
	if !terminal(c.Tool) { // those are long, and said elsewhere
		_ = json.Unmarshal([]byte(c.Args), &args) // arguments that do not read are left out of the line
	}
	tool := c.Tool
	var device string
	if json.Unmarshal(args["device"], &device) == nil && device != "" {
		delete(args, "device")
		tool = sanitize.Line(device, 40) + " " + strings.Replace(tool, "_", ".", 1)
	}
	for _, k := range slices.SortedFunc(maps.Keys(args), whereFirst) {
		tool += " " + sanitize.Line(k, 24) + "=" + value(args[k])
	}
	return tool
}

// why a call has not succeeded, for people. What a gate's opening tells the model to do is nothing to them: they are asked.
func why(r doors.ToolResult) string {
	if r.Status == doors.Pending && r.Gate != "" && r.Step == 0 {
		return fmt.Sprintf("waits for the approval of rev-%d", r.Revision)
	}
	if r.Status == doors.Refused && r.Reason == doors.DeviceAway && r.Message != "" { // nobody forbade it
		return "not run, " + r.Message
	}
	if more := cmp.Or(r.Message, r.Reason); more != "" {
		return r.Status + ", " + more
	}
	return r.Status
}

// whereFirst orders arguments by name, and what may be long after the others, so that where something is done is not cut off behind it.
func whereFirst(x, y string) int {
	long := []string{"content", "message", "stdin", "text"}
	if a, b := slices.Contains(long, x), slices.Contains(long, y); a != b {
		if a {
			return 1
		}
		return -1
	}
	return cmp.Compare(x, y)
}

// cut tells whether a capability's output is less than there was: it says so itself, or one of its texts does.
func cut(output json.RawMessage) bool {
	var fields map[string]any
	if json.Unmarshal(output, &fields) != nil {
		return false // none, or no object: every capability's is one
	}
	if fields["truncated"] == true || fields["leftOut"] != nil {
		return true
	}
	for _, v := range fields {
		if s, ok := v.(string); ok && sanitize.Capped(s) {
			return true
		}
	}
	return false
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
