// Package sanitize makes untrusted text safe to show and to hand on: invisible and direction-changing characters become visible,
// terminal sequences and chat-template tokens lose their meaning, and size is held to a cap that says what it left out.
package sanitize

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden tells whether a reader would not see r, or would see other text because of it: controls, format characters (zero-width,
// bidi), private use, unassigned, variation selectors, tags, odd spaces and fillers.
func Hidden(r rune) bool {
	switch {
	case r == utf8.RuneError, unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), unicode.Is(unicode.Cs, r):
		return true
	case unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
		return true
	case unicode.Is(unicode.Zs, r) && r != ' ':
		return true
	case r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0 || r == 0x2800 || r == 0x034F || r == 0x17B4 || r == 0x17B5 || r == 0x1D159: // draw nothing
		return true
	case !unicode.IsPrint(r) && r != ' ':
		return true
	}
	return false
}

// Quote puts s on one line between double quotes, as JSON would, with every hidden character written as an escape.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case Hidden(r):
			escape(&b, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

// Line shows s on one line without quotes: hidden characters as escapes, line breaks as spaces, cut to limit runes with an ellipsis.
func Line(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.Join(strings.Fields(s), " ") {
		if n == limit {
			b.WriteRune('…')
			break
		}
		if Hidden(r) {
			escape(&b, r)
		} else {
			b.WriteRune(r)
		}
		n++
	}
	return b.String()
}

func escape(b *strings.Builder, r rune) {
	if r > 0xFFFF {
		fmt.Fprintf(b, `\U%08x`, r)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

// Cap keeps at most limit bytes of s: its head and its tail, with a marker between them that says how much is missing. It cuts
// between runes.
func Cap(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	keep := limit - len(marker(len(s))) // no count can be longer than this one
	if keep <= 0 {
		return cutTail(s, limit)
	}
	head := cutTail(s, keep*2/3)
	tail := cutHead(s, keep-len(head))
	return head + marker(len(s)-len(head)-len(tail)) + tail
}

// Capped tells whether a text looks as if Cap had cut it.
func Capped(s string) bool { return mark.MatchString(s) }

var mark = regexp.MustCompile(`\n\[… [0-9]+ bytes left out …\]\n`)

func marker(n int) string { return fmt.Sprintf("\n[… %d bytes left out …]\n", n) }

func cutTail(s string, n int) string {
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func cutHead(s string, n int) string {
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

var (
	// terminal sequences: CSI, OSC (ended by BEL or ST), and the two-byte forms; ECMA-48.
	ansi = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[@-Z\\\\-_]|\u009b[0-?]*[ -/]*[@-~]")
	// tokens by which chat templates mark roles, turns and tools (ChatML, Llama, Mistral, Gemma, DeepSeek, Alpaca), and lines that
	// pretend to be a system's. Lower-case [user] and [system] stay: they are sections of many configuration files.
	template = regexp.MustCompile(`<[|｜][^|｜\n]{1,64}[|｜]>|\[/?(?:INST|SYS|SYSTEM(?:[ _-][A-Z]+)?|ASSISTANT|USER|DEVELOPER|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\]` +
		`|<</?SYS>>|</?(?:system|assistant|developer|tool_call|tool_response|tool_result|function_calls|think)>|</?s>|<(?:bos|eos)>|<start_of_turn>|<end_of_turn>` +
		`|(?m:^[ \t]*(?:###[ ]?(?:Instruction|Response|System)|Human|Assistant|SYSTEM)[ ]?:)`)
)

// Data makes tool output and strangers' words safe to put before a model: terminal sequences removed, hidden characters but line
// breaks and tabs shown as escapes, template tokens broken with a visible mark, words of look-alike letters noted, size capped.
func Data(s string, limit int) string {
	s = ansi.ReplaceAllString(s, "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t' || !Hidden(r):
			b.WriteRune(r)
		default:
			escape(&b, r)
		}
		i += n
	}
	return Cap(noteLookalikes(breakTokens(b.String())), limit)
}

// breakTokens puts a dot after the first visible character of each token.
func breakTokens(s string) string {
	return template.ReplaceAllStringFunc(s, func(t string) string {
		at := len(t) - len(strings.TrimLeft(t, " \t")) + 1
		return t[:at] + "·" + t[at:]
	})
}
