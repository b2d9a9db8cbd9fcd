package decision

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want Command
	}{
		"approve with revision":           {"approve rev-1", Command{Kind: Approve, Revision: 1}},
		"case does not matter":            {"Approve REV-12", Command{Kind: Approve, Revision: 12}},
		"spaces around":                   {"  approve   rev-3 \n", Command{Kind: Approve, Revision: 3}},
		"full stop":                       {"approve rev-1.", Command{Kind: Approve, Revision: 1}},
		"bare":                            {"approve", Command{Kind: Approve}},
		"bare with emphasis":              {"Approve!", Command{Kind: Approve}},
		"code":                            {"approve 7f3k2q", Command{Kind: Approve, Code: "7F3K2Q"}},
		"addressed by @":                  {"@ops: approve rev-1", Command{Kind: Approve, Revision: 1}},
		"addressed by name":               {"ops: stop", Command{Kind: Stop}},
		"addressed with comma":            {"Ops, approve", Command{Kind: Approve}},
		"addressed by user ID":            {"@nisse-ops:example.org approve rev-2", Command{Kind: Approve, Revision: 2}},
		"addressed by user ID and colon":  {"@nisse-ops:example.org: approve rev-2", Command{Kind: Approve, Revision: 2}},
		"a sentence after the revision":   {"approve rev-1 but only step 2", Command{Kind: Unclear, Text: "approve rev-1 but only step 2"}},
		"a second line":                   {"approve rev-1\nthanks", Command{Kind: Unclear, Text: "approve rev-1\nthanks"}},
		"a revision that is none":         {"approve rev-0", Command{Kind: Unclear, Text: "approve rev-0"}},
		"a revision without dash":         {"approve rev1", Command{Kind: Unclear, Text: "approve rev1"}},
		"a word that reads like a code":   {"approve Please", Command{Kind: Approve, Code: "PLEASE", Word: true}},
		"yes":                             {"Yes!", Command{Kind: Nod, Text: "Yes!"}},
		"no, to the agent by name":        {"ops: no.", Command{Kind: Nod, Text: "no."}},
		"go ahead":                        {"go ahead", Command{Kind: Nod, Text: "go ahead"}},
		"a brown thumb":                   {"👍🏾", Command{Kind: Nod, Text: "👍🏾"}},
		"a tick as a picture":             {"✔\ufe0f", Command{Kind: Nod, Text: "✔\ufe0f"}},
		"yes and more":                    {"yes, in web2", Command{Kind: Words, Text: "yes, in web2"}},
		"a word that begins like a yes":   {"yesterday", Command{Kind: Words, Text: "yesterday"}},
		"a word that is no code":          {"approve everything", Command{Kind: Unclear, Text: "approve everything"}},
		"a code, digits for letters":      {"approve k20r18", Command{Kind: Approve, Code: "K2ORIB"}},
		"a code with a digit it lacks":    {"approve 7F3K29", Command{Kind: Unclear, Text: "approve 7F3K29"}},
		"two revisions":                   {"approve rev-1 rev-2", Command{Kind: Unclear, Text: "approve rev-1 rev-2"}},
		"a sentence that begins so":       {"approve the new budget plan", Command{Kind: Words, Text: "approve the new budget plan"}},
		"a word that begins so":           {"approved rev-1", Command{Kind: Words, Text: "approved rev-1"}},
		"not at the beginning":            {"please approve rev-1", Command{Kind: Words, Text: "please approve rev-1"}},
		"a name without sign":             {"ops approve rev-1", Command{Kind: Words, Text: "ops approve rev-1"}},
		"another name":                    {"dev: approve rev-1", Command{Kind: Words, Text: "dev: approve rev-1"}},
		"a longer name":                   {"@opsy: approve rev-1", Command{Kind: Words, Text: "@opsy: approve rev-1"}},
		"quoted":                          {"> approve rev-1", Command{Kind: Words, Text: "> approve rev-1"}},
		"quoted twice":                    {">> approve rev-1\n> no", Command{Kind: Words, Text: ">> approve rev-1\n> no"}},
		"quoted, with words below":        {"> approve rev-1\n\nwhy did you?", Command{Kind: Words, Text: "> approve rev-1\n\nwhy did you?"}},
		"reply fallback, then a decision": {"> <@gates:x> Plan rev-1\n\napprove rev-1", Command{Kind: Approve, Revision: 1}},
		"in a block of code":              {"```\napprove rev-1\n```", Command{Kind: Words, Text: "```\napprove rev-1\n```"}},
		"in a block never closed":         {"```\napprove rev-1", Command{Kind: Words, Text: "```\napprove rev-1"}},
		"in a block with tildes":          {"~~~\napprove rev-1\n~~~", Command{Kind: Words, Text: "~~~\napprove rev-1\n~~~"}},
		"in a span of code":               {"`approve rev-1`", Command{Kind: Words, Text: "`approve rev-1`"}},
		"indented as code":                {"    approve rev-1", Command{Kind: Words, Text: "approve rev-1"}},
		"quoted command in a sentence":    {`"approve rev-1"`, Command{Kind: Words, Text: `"approve rev-1"`}},
		"zero width inside the word":      {"appr\u200bove rev-1", Command{Kind: Unclear, Text: "appr\u200bove rev-1"}},
		"zero width at the end":           {"approve rev-1\u200b", Command{Kind: Unclear, Text: "approve rev-1\u200b"}},
		"direction override":              {"approve \u202erev-1", Command{Kind: Unclear, Text: "approve \u202erev-1"}},
		"no-break space":                  {"approve\u00a0rev-1", Command{Kind: Unclear, Text: "approve\u00a0rev-1"}},
		"letters that look alike":         {"аpprove rev-1", Command{Kind: Words, Text: "аpprove rev-1"}},
		"other digits":                    {"approve rev-١", Command{Kind: Unclear, Text: "approve rev-١"}},

		"reject":                  {"reject use /srv/daily.txt instead", Command{Kind: Reject, Text: "use /srv/daily.txt instead"}},
		"reject without words":    {"Reject", Command{Kind: Reject}},
		"reject a revision":       {"reject rev-2 too broad", Command{Kind: Reject, Revision: 2, Text: "too broad"}},
		"reject a revision alone": {"reject rev-2", Command{Kind: Reject, Revision: 2}},
		"reject with colon":       {"reject rev-2: too broad", Command{Kind: Reject, Revision: 2, Text: "too broad"}},
		"reject in lines":         {"reject\nfirst\n\nsecond", Command{Kind: Reject, Text: "first\n\nsecond"}},

		"continue":        {"continue", Command{Kind: Continue}},
		"continue, words": {"continue with care", Command{Kind: Continue, Text: "with care"}},
		"replan":          {"Replan: use the other disk", Command{Kind: Replan, Text: "use the other disk"}},
		"abandon":         {"ABANDON", Command{Kind: Abandon}},

		"stop":              {"stop", Command{Kind: Stop}},
		"stop, loud":        {"STOP!!", Command{Kind: Stop}},
		"stop now":          {"stop now!", Command{Kind: Stop}},
		"stop something":    {"stop nginx on web1", Command{Kind: Words, Text: "stop nginx on web1"}},
		"status":            {"status", Command{Kind: Status}},
		"status, asked":     {"ops: status.", Command{Kind: Status}},
		"help":              {"help", Command{Kind: Help}},
		"help, asked":       {"ops: Help?", Command{Kind: Help}},
		"a question mark":   {"?", Command{Kind: Help}},
		"help with a thing": {"help me with nginx", Command{Kind: Words, Text: "help me with nginx"}},
		"go on":             {"ok, go on", Command{Kind: Nod, Text: "ok, go on"}},
		"go on with more":   {"go on with web2", Command{Kind: Words, Text: "go on with web2"}},
		"status of a thing": {"status of web1?", Command{Kind: Words, Text: "status of web1?"}},

		"nothing":               {"", Command{Kind: Words}},
		"blank":                 {" \n\t ", Command{Kind: Words}},
		"words":                 {"nginx is down", Command{Kind: Words, Text: "nginx is down"}},
		"words to somebody":     {"ops: nginx is down", Command{Kind: Words, Text: "nginx is down"}},
		"a port is no address":  {"ops:22 is open", Command{Kind: Words, Text: "ops:22 is open"}},
		"an emoji is words":     {"🎉", Command{Kind: Words, Text: "🎉"}},
		"invalid UTF-8":         {"approve \xff", Command{Kind: Unclear, Text: "approve \xff"}},
		"just the agent's name": {"@ops", Command{Kind: Words}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Parse(tc.body, "ops", "@nisse-ops:example.org", "nisse-ops", "@gates:example.org", "gates")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse(%q) -want +got:\n%s", tc.body, diff)
			}
		})
	}
}

func TestLead(t *testing.T) {
	for name, tc := range map[string]struct {
		text, lead, rest string
		sure             bool
	}{
		"a code":              {"7F3K2Q too early", "7F3K2Q", "too early", true},
		"typed in lower case": {"7f3k2q", "7F3K2Q", "", false},
		"digits for letters":  {"K20RH1: no", "K2ORHI", "no", true},
		"a letter and 0s":     {"A00000 no", "AOOOOO", "no", true},
		"a number":            {"100000 is too much", "IOOOOO", "is too much", false},
		"a word":              {"please not", "PLEASE", "not", false},
		"a shorter word":      {"do not", "", "do not", false},
	} {
		t.Run(name, func(t *testing.T) {
			if lead, rest, sure := Lead(tc.text); lead != tc.lead || rest != tc.rest || sure != tc.sure {
				t.Errorf("got %q, %q, %t", lead, rest, sure)
			}
		})
	}
}

// Whatever is typed: an approval is plain visible text that a person can retype from what they see, and it survives no quoting.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"approve rev-1", "reject rev-2: x", "> approve", "ops: stop", "```\napprove\n```", "approve 7F3K2Q", "a\u200bpprove"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c := Parse(body, "ops")
		if c != Parse(body, "ops") {
			t.Fatal("one body read two ways")
		}
		if c.Kind == Approve {
			if c.Revision != 0 && c.Code != "" {
				t.Fatalf("%q names a revision and a code", body)
			}
			for _, r := range c.Code {
				if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", r) {
					t.Fatalf("code %q", c.Code)
				}
			}
			if !strings.Contains(strings.ToLower(body), "approve") {
				t.Fatalf("%q approves without saying so", body)
			}
		}
		var quoted strings.Builder
		for line := range strings.Lines(body) {
			quoted.WriteString("> " + line)
		}
		if strings.ContainsRune(body, '\r') {
			return // a lone carriage return is no end of line for those who quote, and none for us
		}
		if q := Parse(quoted.String(), "ops"); q.Kind != Words {
			t.Fatalf("quoted, %q is still %s", body, q.Kind)
		}
	})
}
