package model

import (
	"regexp"
	"strings"
)

var (
	thinkOpen  = regexp.MustCompile(`(?i)<think(?:ing)?>`)
	thinkClose = regexp.MustCompile(`(?i)</think(?:ing)?>`)
)

// Split parts what a model says from what it thought. A block that is never closed is thought to its end: the answer was cut while
// it thought. A close without an open means that all before it was thought: the server's template had opened the block before the
// answer began, or the thought itself spoke of such blocks.
func Split(s string) (speech, thought string) {
	var say, think strings.Builder
	add := func(s string) {
		if s = strings.TrimSpace(s); s != "" {
			think.WriteString(s + "\n")
		}
	}
	for s != "" {
		open, end := thinkOpen.FindStringIndex(s), thinkClose.FindStringIndex(s)
		switch {
		case open == nil && end == nil:
			say.WriteString(s)
			s = ""
		case end != nil && (open == nil || end[0] < open[0]):
			add(say.String())
			say.Reset()
			add(s[:end[0]])
			s = s[end[1]:]
		default:
			say.WriteString(s[:open[0]])
			s = s[open[1]:]
			end := thinkClose.FindStringIndex(s)
			if end == nil {
				end = []int{len(s), len(s)}
			}
			add(s[:end[0]])
			s = s[end[1]:]
		}
	}
	return strings.TrimSpace(say.String()), strings.TrimSpace(think.String())
}
