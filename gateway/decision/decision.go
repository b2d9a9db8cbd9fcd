// Package decision reads what a person typed in a room: a decision about a gate, a command, or words. It is pure and knows
// nothing of gates, rights or rooms. It errs towards words: what is quoted, shown as code, or followed by anything else never
// decides.
package decision

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"nisse.io/nisse/internal/sanitize"
)

// Kind of what was typed.
type Kind string

const (
	// Words: anything that is no command.
	Words Kind = "words"
	// Approve a gate: Revision or Code name it; neither means the only open one.
	Approve Kind = "approve"
	// Reject a gate, with Text as feedback; Revision names it, 0 means the only open one.
	Reject Kind = "reject"
	// Continue, Replan and Abandon answer a halt, with Text as advice.
	Continue Kind = "continue"
	Replan   Kind = "replan"
	Abandon  Kind = "abandon"
	// Stop the item at hand.
	Stop Kind = "stop"
	// Status asks how things stand.
	Status Kind = "status"
	// Help asks what can be typed.
	Help Kind = "help"
	// Unclear: it looks like an approval and is not exactly one, so the person is told instead of being guessed at.
	Unclear Kind = "unclear"
	// Nod is a yes or a no and nothing else. It decides nothing; while something waits for a decision, that is what it was meant for.
	Nod Kind = "nod"
)

// Command is what was typed, read.
type Command struct {
	Kind Kind
	// Revision named by rev-N.
	Revision int32
	// Code named, in upper case. Word tells that it was typed as words are, and may be one: "please".
	Code string
	Word bool
	// Text that goes with it: the feedback of Reject, the advice of an answer, the words of Words without the agent's name
	// before them.
	Text string
}

var (
	revision = regexp.MustCompile(`(?i)^rev-([1-9][0-9]{0,5})$`)
	// code is what approval.Code makes, base32 of RFC 4648, and what people type for it: that has no 0, 1 and 8.
	code    = regexp.MustCompile(`(?i)^[A-Z0-8]{6}$`)
	misread = strings.NewReplacer("0", "O", "1", "I", "8", "B")
	word    = regexp.MustCompile(`^[A-Z]?[a-z]+$`)
	// nods are what people say for yes and no. The colour of a thumb is no matter.
	nods = regexp.MustCompile(`(?i)^(y|yes|yep|yeah|yup|ok|okay|k|((ok|okay|yes|please),? )?(go|go on|go ahead|do it|proceed)|sure|fine|agreed|approved|lgtm|\+1|ja|oui|si|sí|` +
		`n|no|nope|nah|don't|do not|rejected|-1|nein|non|thumbs up|thumbs down|` +
		`(👍|👎|👌|✅|✔|❌)[\x{fe0f}\x{1f3fb}-\x{1f3ff}]*)[.! ]*$`)
	// stopping words that people add to stop and that change nothing. Longer sentences are words: "stop nginx on web1" is work.
	stopping = map[string]bool{"": true, "now": true, "please": true, "it": true}
)

// Parse reads the plain body of a message. Names are those by which the agent may be addressed in front ("ops: stop").
func Parse(body string, names ...string) Command {
	rest := strip(body)
	if code := rest != strings.TrimLeft(rest, " \t") && indented(rest); code {
		return Command{Kind: Words, Text: strings.TrimSpace(body)}
	}
	rest = unaddress(strings.TrimSpace(rest), names)
	c := read(rest)
	if c.Kind == Words || c.Kind == Nod {
		c.Text = Said(body, names...)
		if seen := strings.Map(visible, rest); seen != rest && decides(read(strings.TrimSpace(seen)).Kind) {
			// The eye reads a decision where the bytes hold something else as well.
			return Command{Kind: Unclear, Text: c.Text}
		}
		return c
	}
	if decides(c.Kind) && strings.ContainsFunc(firstLine(rest), sanitize.Hidden) {
		return Command{Kind: Unclear, Text: rest}
	}
	return c
}

// Said is the body as words to the agent: all of it but the agent's name in front.
func Said(body string, names ...string) string {
	return unaddress(strings.TrimSpace(body), names)
}

// Lead reads the code of a gate in front of the text that goes with a decision: "reject 7F3K2Q too early". It may be a word all the
// same, and only who knows the gates can tell; sure tells that it can hardly be one.
func Lead(text string) (lead, rest string, sure bool) {
	first, rest := cut(text)
	if !code.MatchString(first) {
		return "", text, false
	}
	digits := strings.ContainsAny(first, "234567") || strings.ContainsAny(first, "018") && strings.ToLower(first) != first
	return spell(first), rest, strings.ToUpper(first) == first && digits
}

// spell a code as it is shown.
func spell(typed string) string { return misread.Replace(strings.ToUpper(typed)) }

func read(s string) Command {
	word, arg := cut(s)
	switch Kind(strings.ToLower(word)) {
	case Approve:
		return readApprove(s, arg)
	case Reject:
		return readReject(arg)
	case Continue:
		return Command{Kind: Continue, Text: arg}
	case Replan:
		return Command{Kind: Replan, Text: arg}
	case Abandon:
		return Command{Kind: Abandon, Text: arg}
	case Stop:
		if stopping[strings.ToLower(trimEnd(arg))] {
			return Command{Kind: Stop}
		}
	case Status:
		if trimEnd(arg) == "" {
			return Command{Kind: Status}
		}
	case Help, "?":
		if trimEnd(arg) == "" {
			return Command{Kind: Help}
		}
	case "help?":
		return Command{Kind: Help}
	case Words, Unclear, Nod: // these are no words of command
	}
	if nods.MatchString(s) {
		return Command{Kind: Nod, Text: s}
	}
	return Command{Kind: Words, Text: s}
}

func readApprove(s, arg string) Command {
	first, more := cut(arg)
	switch {
	case first == "":
		return Command{Kind: Approve}
	case more == "" && revision.MatchString(trimEnd(first)):
		return Command{Kind: Approve, Revision: number(trimEnd(first))}
	case more == "" && code.MatchString(first):
		return Command{Kind: Approve, Code: spell(first), Word: word.MatchString(first)}
	case more == "", len(first) >= 3 && strings.EqualFold(first[:3], "rev"):
		return Command{Kind: Unclear, Text: s}
	}
	return Command{Kind: Words, Text: s}
}

func readReject(arg string) Command {
	if first, more := cut(arg); revision.MatchString(strings.TrimRight(first, ":,.")) {
		return Command{Kind: Reject, Revision: number(strings.TrimRight(first, ":,.")), Text: more}
	}
	return Command{Kind: Reject, Text: arg}
}

func decides(k Kind) bool { return k != Words && k != Status && k != Nod && k != Help }

// strip takes away what a person did not say themselves, from the top: quoted lines, the fallback of a reply, and blocks of code.
// Only what comes before the first word of their own is looked at; what follows is the text of the command.
func strip(body string) string {
	lines := strings.Split(strings.ReplaceAll(body, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case line == "", strings.HasPrefix(line, ">"):
		case strings.HasPrefix(line, "```"), strings.HasPrefix(line, "~~~"):
			end := i + 1
			for end < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[end]), line[:3]) {
				end++
			}
			i = end
		default:
			return strings.Join(lines[i:], "\n")
		}
	}
	return ""
}

// indented tells whether the first line is a block of code as Markdown means it.
func indented(s string) bool {
	return strings.HasPrefix(s, "    ") || strings.HasPrefix(s, "\t")
}

// unaddress takes the name of the one spoken to from the front. Without a colon or comma after it, or an @ before it, a name
// is the first word of a sentence.
func unaddress(s string, names []string) string {
	for _, name := range names {
		if name == "" {
			continue
		}
		rest, at := strings.CutPrefix(s, "@")
		bare := strings.TrimPrefix(name, "@")
		if len(rest) < len(bare) || !strings.EqualFold(rest[:len(bare)], bare) {
			continue
		}
		rest = rest[len(bare):]
		if after := strings.TrimLeft(rest, " "); strings.HasPrefix(after, ":") || strings.HasPrefix(after, ",") {
			// "ops:22 is open" is no address.
			if rest = after[1:]; rest == "" || rest[0] == ' ' || rest[0] == '\n' {
				return strings.TrimSpace(rest)
			}
			continue
		}
		if at && (rest == "" || rest[0] == ' ' || rest[0] == '\n') {
			return strings.TrimSpace(rest)
		}
	}
	return s
}

// cut splits the first word from the rest. Only plain spaces and line breaks separate words: an odd space hides something.
func cut(s string) (word, rest string) {
	i := strings.IndexAny(s, " \n\t")
	if i < 0 {
		return trimCommand(s), ""
	}
	return trimCommand(s[:i]), strings.TrimSpace(s[i:])
}

// trimCommand lets "Stop!" and "reject: why" through.
func trimCommand(s string) string { return strings.TrimRight(s, ".!:,") }

func trimEnd(s string) string { return strings.TrimRight(s, ".! \n") }

func number(rev string) int32 {
	n, err := strconv.ParseInt(revision.FindStringSubmatch(rev)[1], 10, 32)
	if err != nil { // the pattern holds six digits at most
		return 0
	}
	return int32(n)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// visible drops what a reader does not see and makes odd spaces plain.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case unicode.IsSpace(r):
		return ' '
	case sanitize.Hidden(r):
		return -1
	}
	return r
}
