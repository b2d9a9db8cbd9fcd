// Package render writes what a person reads before deciding. The text comes from the stored subject alone: every device,
// capability and argument that would run, in full. What an agent says about its plan comes last, short and labelled.
//
// The output is plain text. Untrusted strings are JSON-quoted on one line each, cannot draw a line of their own, and hold nothing
// that a client would make clickable. A channel that wraps it in markup escapes it like any other text.
//
// Channels know the parts of a message by how its lines begin, since no untrusted string begins one: the second says for whom it
// waits, steps are numbered, what belongs to a step is indented, a line of a report begins with a dash, and the last says what to reply.
package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/sanitize"
)

const (
	// MaxBytes of a message.
	MaxBytes = 64 * 1024
	// MaxProse is how many characters of the agent's words are shown.
	MaxProse = 280
	maxTitle = 120
	maxHalt  = 8192
	// command that a report names.
	command = "kubectl nisse "
)

// ErrTooLong tells that a subject cannot be shown in full. What cannot be shown is not asked.
var ErrTooLong = errors.New("too long to be shown in full")

// choices say what each answer to a halt does.
const choices = "continue: it goes on with what was approved; a plan that was still open is asked for again.\n" +
	"replan: no plan made so far runs any more; it makes another, by your advice.\n" +
	"abandon: the work is closed.\n"

// unknownChoices are the same where nobody can prove how a step ended.
const unknownChoices = "continue: the step counts as done, and it goes on with what was approved.\n" +
	"replan: no plan made so far runs any more; it makes another, by your advice.\n" +
	"abandon: the work is closed.\n"

// Nothing is what stands where flags would.
const Nothing = "Nothing here is marked irreversible or protected."

// Gate is what the message says about the gate itself.
type Gate struct {
	Agent     string
	Title     string
	Approvers []string
	Required  int32
	Flags     []string
	Rule      string
	AskedAt   time.Time
	ExpiresAt time.Time
	// ByCode: it is approved by its code, which stands beside the message where that is shown.
	ByCode bool
	// Signers whose own signature approving takes, and the plugin's arguments that give it; empty when none is asked for.
	Signers []string
	Sign    string
}

// Plan renders the question whether a plan may run, or a single call.
func Plan(g Gate, p v1alpha1.PlanSpec) (string, error) {
	var b strings.Builder
	rev := fmt.Sprintf("rev-%d", p.Revision)
	what := "Plan"
	if p.Call {
		what = "Call"
	}
	fmt.Fprintf(&b, "%s %s of %s for %s\n", what, rev, plain(g.Agent), inert(Cut(g.Title, maxTitle)))
	fmt.Fprintf(&b, "Waits for %s until %s.\n", who(g), clock.Tell(g.ExpiresAt.UTC(), g.AskedAt))
	flags(&b, g)
	b.WriteByte('\n')
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "%d. %s · %s\n", i+1, plain(s.Device), plain(s.Capability))
		if err := args(&b, s.Args); err != nil {
			return "", fmt.Errorf("step %d: %w", i+1, err)
		}
		runs(&b, s.Resolved)
	}
	b.WriteByte('\n')
	if strings.TrimSpace(p.Body) != "" {
		fmt.Fprintf(&b, "The agent's words: %s\n", inert(Cut(p.Body, MaxProse)))
	}
	if len(g.Signers) > 0 {
		fmt.Fprintf(&b, "Approving takes the own signature of %s, which no message in a room can carry. Where the key is kept, run:\n   %s%s\n", strings.Join(plainAll(g.Signers), " or "), command, g.Sign)
		b.WriteString("Reply  reject <why>")
		return capped(b.String())
	}
	name := rev
	if g.ByCode {
		name = "<code>"
	}
	fmt.Fprintf(&b, "Reply  approve %s  ·  reject <why>", name)
	return capped(b.String())
}

// Halt is what holds an item.
type Halt struct {
	// StoppedBy says who said stop; empty without a stop.
	StoppedBy string
	Stopped   bool
	// Report of the broker, if it halted the item.
	Report *v1alpha1.HaltReport
}

// Stop renders the question how a stopped or halted item goes on.
func Stop(g Gate, h Halt) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has stopped in %s\n", plain(g.Agent), inert(Cut(g.Title, maxTitle)))
	fmt.Fprintf(&b, "Waits for %s.\n\n", who(g))
	if h.Stopped {
		by := "A person said stop."
		if h.StoppedBy != "" {
			by = "Stopped by " + plain(h.StoppedBy) + "."
		}
		b.WriteString(by + "\n")
	}
	if r := h.Report; r != nil {
		if r.Revision > 0 && r.Step > 0 {
			fmt.Fprintf(&b, "Stopped by the broker at step %d of rev-%d:\n", r.Step, r.Revision)
		} else {
			b.WriteString("Stopped by the broker:\n")
		}
		for line := range strings.SplitSeq(Cut(cmp.Or(r.Message, string(r.Reason)), maxHalt), "\n") {
			// Marked, because no line of it may look like one of ours. A command is code, to be copied.
			mark := "– "
			if strings.HasPrefix(line, command) {
				mark = "   "
			}
			fmt.Fprintf(&b, "%s%s\n", mark, quotedAlready(line))
		}
	}
	b.WriteString("\nNothing runs until you answer.\n")
	if h.Report != nil && h.Report.Reason == v1alpha1.HaltOutcomeUnknown {
		b.WriteString(unknownChoices)
	} else {
		b.WriteString(choices)
	}
	b.WriteString("Reply  continue  ·  replan <advice>  ·  abandon")
	return capped(b.String())
}

// quotedAlready shows a line in which the broker has quoted what is untrusted. Its quotes stay as they are; hidden characters and
// live text are broken all the same, whatever the broker did.
func quotedAlready(line string) string {
	q := sanitize.Quote(line)
	return defuse(strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(q[1 : len(q)-1]))
}

func flags(b *strings.Builder, g Gate) {
	if len(g.Flags) == 0 {
		b.WriteString(Nothing + "\n")
	}
	for _, f := range g.Flags {
		fmt.Fprintf(b, "! %s\n", inert(f))
	}
	fmt.Fprintf(b, "Asked because: %s.\n", g.Rule)
}

// Names lists people's names on one line.
func Names(people []string) string {
	return strings.Join(plainAll(people), ", ")
}

func plainAll(people []string) []string {
	names := make([]string, len(people))
	for i, n := range people {
		names[i] = plain(n)
	}
	return names
}

func who(g Gate) string {
	all := Names(g.Approvers)
	if g.Required > 1 {
		return fmt.Sprintf("%d of %s", g.Required, all)
	}
	if len(g.Approvers) > 1 {
		return "one of " + all
	}
	return all
}

var simple = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)

// plain shows a name as it is when it is made of ordinary characters, and quoted when it is not.
func plain(s string) string {
	if simple.MatchString(s) && !live.MatchString(s) {
		return s
	}
	return inert(s)
}

// contents are arguments that may be long: they come last, so that what they are for stands above them.
var contents = []string{"content", "message", "stdin", "text"}

// args writes one line an argument, in the order of their names.
func args(b *strings.Builder, canonical string) error {
	d := json.NewDecoder(strings.NewReader(canonical))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return fmt.Errorf("arguments are not a JSON object: %w", err)
	}
	if d.More() {
		return errors.New("arguments have data after the object")
	}
	names := slices.Sorted(maps.Keys(m))
	last := func(name string) bool { return slices.Contains(contents, name) }
	for _, k := range slices.Concat(slices.DeleteFunc(slices.Clone(names), last), slices.DeleteFunc(names, func(name string) bool { return !last(name) })) {
		fmt.Fprintf(b, "   %s = %s\n", plain(k), value(m[k]))
	}
	return nil
}

// shownHash is how many digits of a hash are shown. All of it is in the plan and counts.
const shownHash = 12

// runs writes the line of a step that says what would run. No argument's line looks like it: those have " = " behind their name.
func runs(b *strings.Builder, r *v1alpha1.ResolvedProgram) {
	if r == nil {
		return
	}
	hash := []rune(r.SHA256)
	fmt.Fprintf(b, "   runs %s as %s, SHA-256 %s…\n", inert(r.Executable), plain(r.User), plain(string(hash[:min(len(hash), shownHash)])))
}

// value shows any JSON value on one line.
func value(v any) string {
	switch v := v.(type) {
	case string:
		return inert(v)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = value(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, inert(k)+":"+value(v[k]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	var b bytes.Buffer // a number, a boolean or null: ASCII by JSON's own grammar
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return inert(err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func capped(s string) (string, error) {
	if len(s) > MaxBytes {
		return "", fmt.Errorf("%w: %d bytes, %d at most; submit a smaller plan", ErrTooLong, len(s), MaxBytes)
	}
	return s, nil
}
