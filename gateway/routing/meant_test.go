package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// current is the open gate at noon, whose message was sent so long before; nginx's, with a code of its own.
func current(kind GateKind, n int32, shown time.Duration) Gate {
	return rev(n, "wi-1", func(g *Gate) {
		g.Kind, g.Name, g.UID, g.Code, g.ShownAt, g.Thread = kind, "now", "uid-now", "NEWER2", noon.Add(-shown), "$wi-1"
	})
}

// shared is a gate whose work was in the thread that is nginx's now; lost is one whose thread is not known, and neither is nginx's.
func shared(g Gate) Gate { g.Thread = "$wi-1"; return g }

func lost(gates []Gate) []Gate {
	for i := range gates {
		gates[i].Thread = ""
	}
	return gates
}

// earlier is a gate that ended so long before noon by a person's decision, or by none.
func earlier(kind GateKind, n int32, item string, ended time.Duration, by string) Gate {
	return rev(n, item, func(g *Gate) {
		g.Kind, g.Open, g.UID, g.Code, g.Ended = kind, false, "uid-"+item, "EARLY2", "It is over."
		g.Became = "was dropped at 11:59"
		g.EndedAt, g.EndedBy, g.ShownAt, g.Thread = noon.Add(-ended), by, noon.Add(-ended-time.Minute), "$"+item
		if item != "wi-1" {
			g.Title = "disk"
		}
	})
}

// namesake has nginx's title and is other work.
func namesake(g Gate) Gate { g.Title = "nginx"; return g }

func answered(g Gate, with string) Gate {
	g.Answer = with
	return g
}

// Words that were typed about one gate do not decide the next one, which nobody can have read: not when they are typed twice, whatever
// the agent does between, nor by the clock of anybody's homeserver. The code of a gate decides it whenever it is typed.
func TestWordsMeanWhatWasRead(t *testing.T) {
	const (
		swapped = "you may have meant rev-1 of \"nginx\", which was dropped at 11:59"
		other   = "you may have meant rev-1 of \"disk\", which was dropped at 11:59"
		halts   = "you may have meant the stop of \"nginx\", which was dropped at 11:59"
		haltsB  = "you may have meant the stop of \"disk\", which was dropped at 11:59"
		again   = "you decided rev-1 of \"nginx\" just now, and this may be the same message once more"
		againB  = "you decided rev-1 of \"disk\" just now, and this may be the same message once more"
		halted  = "you decided the stop of \"nginx\" just now, and this may be the same message once more"
		haltedB = "you decided the stop of \"disk\" just now, and this may be the same message once more"
		early   = "by its time this message was sent before rev-%d was shown"
		earlyH  = "by its time this message was sent before the stop was shown"
		titles  = " (that one was shown at 11:58:58 UTC; what is open has the same title and was shown at 11:59:59 UTC)"
		s       = time.Second
	)
	read := time.Minute // long enough to have read it
	plans := func(n int32, shown time.Duration, before ...Gate) []Gate {
		return append([]Gate{current(Plan, n, shown)}, before...)
	}
	halt := func(shown time.Duration, before ...Gate) []Gate {
		return append([]Gate{current(Halt, 0, shown)}, before...)
	}
	for name, tc := range map[string]struct {
		say    string
		gates  []Gate
		at     time.Duration // after noon, by the sender's homeserver
		now    time.Duration // after noon, by the gateway's clock
		thread *Item
		doubt  string // why nothing is decided; empty: it is
	}{
		// A plan took another's place, by the agent's hand or another person's.
		"replaced, bare":                       {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", s, "")), doubt: swapped},
		"replaced, the later revision":         {say: "approve rev-2", gates: plans(2, s, earlier(Plan, 1, "wi-1", s, ""))},
		"replaced, 59 s ago":                   {say: "approve", gates: plans(2, read, earlier(Plan, 1, "wi-1", 59*s, "")), doubt: swapped},
		"replaced, 61 s ago":                   {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", 61*s, ""))},
		"decided by another approver":          {say: "approve", gates: plans(2, read, earlier(Plan, 1, "wi-1", s, "vera")), doubt: swapped},
		"another item's plan of that number":   {say: "approve rev-1", gates: plans(1, s, earlier(Plan, 1, "wi-0", s, "")), doubt: other},
		"the same, in the thread of the open":  {say: "approve rev-1", gates: plans(1, s, earlier(Plan, 1, "wi-0", s, "")), thread: nginx()},
		"the same, in the thread of both":      {say: "approve rev-1", gates: plans(1, s, shared(earlier(Plan, 1, "wi-0", s, ""))), thread: nginx(), doubt: other},
		"the same, bare, in the thread":        {say: "approve", gates: plans(1, s, shared(earlier(Plan, 1, "wi-0", s, ""))), thread: nginx(), doubt: other},
		"the same, the threads are not known":  {say: "approve rev-1", gates: lost(plans(1, s, earlier(Plan, 1, "wi-0", s, ""))), thread: nginx(), doubt: other},
		"the same, read":                       {say: "approve rev-1", gates: plans(1, 30*s, shared(earlier(Plan, 1, "wi-0", 61*s, ""))), thread: nginx()},
		"bare, in the thread, of the same":     {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", s, "")), thread: nginx(), doubt: swapped},
		"one that the room never saw":          {say: "approve", gates: plans(2, s, func() Gate { g := earlier(Plan, 1, "wi-1", s, ""); g.Shown, g.Glimpsed = false, false; return g }())},
		"one that it saw in part":              {say: "approve", gates: plans(2, s, func() Gate { g := earlier(Plan, 1, "wi-1", s, ""); g.Shown = false; return g }()), doubt: swapped},
		"a halt that ended is no plan":         {say: "approve", gates: plans(2, s, earlier(Halt, 0, "wi-1", s, ""))},
		"two before, the older by other hands": {say: "approve", gates: plans(3, read, earlier(Plan, 2, "wi-1", 30*s, "lucas"), earlier(Plan, 1, "wi-1", 40*s, "")), doubt: swapped},

		// The sender decided the one before and types the same again.
		"twice, bare":                             {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas")), doubt: again},
		"twice, the next item's plan":             {say: "approve rev-1", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas")), doubt: againB},
		"twice, bare, the next item's":            {say: "approve", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas")), doubt: againB},
		"twice, 20 s behind the first":            {say: "approve", gates: plans(2, 18*s, earlier(Plan, 1, "wi-1", 20*s, "lucas")), doubt: again},
		"twice, the agent waits before the next":  {say: "approve rev-1", gates: plans(1, s, earlier(Plan, 1, "wi-0", 24*s, "lucas")), doubt: againB},
		"30 s later, read":                        {say: "approve rev-1", gates: plans(1, 12*s, earlier(Plan, 1, "wi-0", 30*s, "lucas"))},
		"30 s later, read, bare":                  {say: "approve", gates: plans(2, 12*s, earlier(Plan, 1, "wi-1", 30*s, "lucas"))},
		"at once, the new revision named":         {say: "approve rev-2", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas"))},
		"at once, in the thread of the next":      {say: "approve rev-1", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas")), thread: nginx()},
		"at once, in the thread of both":          {say: "approve rev-1", gates: plans(1, s, shared(earlier(Plan, 1, "wi-0", 2*s, "lucas"))), thread: nginx(), doubt: againB},
		"minutes later, at once when it shows":    {say: "approve", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*read, "lucas"))},
		"after one's own rejection, bare":         {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas")), doubt: again},
		"twice, by code":                          {say: "approve newer2", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas"))},
		"replaced, by code":                       {say: "approve NEWER2", gates: plans(2, s, earlier(Plan, 1, "wi-1", s, ""))},
		"by code, before it was shown by a clock": {say: "approve NEWER2", gates: plans(2, s), at: -10 * s},

		// Clocks.
		"a clock that is 2 min ahead":              {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "")), at: 2 * read, doubt: swapped},
		"a clock that is 2 min ahead, twice":       {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas")), at: 2 * read, doubt: again},
		"a clock that is a year ahead, a halt":     {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "lucas")), at: 365 * 24 * time.Hour, doubt: halted},
		"a clock that is ahead, nothing before":    {say: "approve", gates: plans(2, s), at: 2 * read},
		"a clock that is behind the showing":       {say: "approve rev-2", gates: plans(2, s), at: -2 * s, doubt: fmt.Sprintf(early, 2)},
		"a clock that is behind the end":           {say: "approve", gates: plans(2, 10*read, earlier(Plan, 1, "wi-1", 5*s, "lucas")), at: -10 * s, doubt: again},
		"a clock that is behind, a halt":           {say: "abandon", gates: halt(s), at: -2 * s, doubt: earlyH},
		"a clock that is behind, in the thread":    {say: "approve", gates: plans(2, s), at: -2 * s, thread: nginx(), doubt: fmt.Sprintf(early, 2)},
		"a clock that is behind, long shown":       {say: "approve rev-2", gates: plans(2, 5*read), at: -read},
		"sent long ago, read by the gateway later": {say: "approve", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas")), now: 10 * read, doubt: again},

		// Halts.
		"continue twice":                          {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "lucas")), doubt: halted},
		"abandon twice, the next item":            {say: "abandon", gates: halt(s, earlier(Halt, 0, "wi-0", 2*s, "lucas")), doubt: haltedB},
		"abandon, after another answer":           {say: "abandon", gates: halt(s, answered(earlier(Halt, 0, "wi-1", 2*s, "lucas"), "Replan"))},
		"abandon, after the same answer":          {say: "abandon", gates: halt(s, answered(earlier(Halt, 0, "wi-0", 2*s, "lucas"), "Abandon")), doubt: haltedB},
		"abandon, after another's answer":         {say: "abandon", gates: halt(s, answered(earlier(Halt, 0, "wi-1", 2*s, "vera"), "Replan"))},
		"abandon, another's, other work":          {say: "abandon", gates: halt(s, answered(earlier(Halt, 0, "wi-0", 2*s, "vera"), "Replan")), doubt: haltsB},
		"continue twice, other work, one title":   {say: "continue", gates: halt(s, namesake(earlier(Halt, 0, "wi-0", 2*s, "lucas"))), doubt: halted + titles},
		"approve, other work, one title":          {say: "approve", gates: plans(1, s, namesake(earlier(Plan, 1, "wi-0", 2*s, ""))), doubt: swapped + titles},
		"continue, after another answer":          {say: "continue", gates: halt(s, answered(earlier(Halt, 0, "wi-1", 2*s, "lucas"), "Replan")), doubt: halted},
		"replan with advice, twice":               {say: "replan use web2", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "lucas")), doubt: halted},
		"continue twice, in the thread":           {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "lucas")), thread: nginx(), doubt: halted},
		"continue, another item's, in the thread": {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-0", 2*s, "lucas")), thread: nginx()},
		"continue, another's, the same thread":    {say: "continue", gates: halt(s, shared(earlier(Halt, 0, "wi-0", 2*s, ""))), thread: nginx(), doubt: haltsB},
		"replan, another's, the same thread":      {say: "replan use web2", gates: halt(s, shared(earlier(Halt, 0, "wi-0", 2*s, ""))), thread: nginx(), doubt: haltsB},
		"abandon, another's, the same thread":     {say: "abandon", gates: halt(s, shared(earlier(Halt, 0, "wi-0", 2*s, ""))), thread: nginx(), doubt: haltsB},
		"continue, the halt was replaced":         {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "")), doubt: halts},
		"continue, another answered":              {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-1", 30*s, "vera")), doubt: halts},
		"continue, the agent waits":               {say: "continue", gates: halt(s, earlier(Halt, 0, "wi-1", 24*s, "lucas")), doubt: halted},
		"continue, 30 s later, read":              {say: "continue", gates: halt(12*s, earlier(Halt, 0, "wi-1", 30*s, "lucas"))},
		"continue, right after an approval":       {say: "continue", gates: halt(s, earlier(Plan, 1, "wi-1", 2*s, "lucas"))},
		"continue twice, by code":                 {say: "continue NEWER2", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "lucas"))},
		"replan by code, with advice":             {say: "replan newer2: use web2", gates: halt(s, earlier(Halt, 0, "wi-1", 2*s, "lucas"))},

		// Rejections run nothing. They count against the same work at once, and against other work only if it is meant.
		"reject, replaced":                    {say: "reject no", gates: plans(2, s, earlier(Plan, 1, "wi-1", s, ""))},
		"reject twice, the same work":         {say: "reject no", gates: plans(2, s, earlier(Plan, 1, "wi-1", 2*s, "lucas"))},
		"reject twice, the next item":         {say: "reject no", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas")), doubt: againB},
		"reject rev-1 twice, the next item":   {say: "reject rev-1 no", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas")), doubt: againB},
		"reject, other work, in its thread":   {say: "reject no", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas")), thread: nginx()},
		"reject, other work, the same thread": {say: "reject no", gates: plans(1, s, shared(earlier(Plan, 1, "wi-0", 2*s, ""))), thread: nginx(), doubt: other},
		"reject, other work, one's approval":  {say: "reject no", gates: plans(1, s, answered(earlier(Plan, 1, "wi-0", 2*s, "lucas"), "Approve"))},
		"reject, other work, one's rejection": {say: "reject no", gates: plans(1, s, answered(earlier(Plan, 1, "wi-0", 2*s, "lucas"), "Reject")), doubt: againB},
		"reject, other work, by code":         {say: "reject NEWER2 no", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "lucas"))},
		"reject, other work, 30 s later":      {say: "reject no", gates: plans(1, 12*s, earlier(Plan, 1, "wi-0", 30*s, "lucas"))},
		"reject, by a clock that is behind":   {say: "reject no", gates: plans(1, s), at: -2 * s},
		"the same, other work before it":      {say: "reject no", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "")), at: -2 * s, doubt: other},
		"reject, other work, a clock 2 ahead": {say: "reject no", gates: plans(1, s, earlier(Plan, 1, "wi-0", 2*s, "")), at: 2 * read, doubt: other},
	} {
		t.Run(name, func(t *testing.T) {
			e := Event{ID: "$e", Room: "!r", Sender: lucas, Type: "m.text", Body: tc.say, At: noon.Add(tc.at)}
			got := with(e, View{Active: nginx(), Thread: tc.thread, Gates: tc.gates, Now: noon.Add(tc.now)})
			g := tc.gates[0]
			if tc.doubt == "" {
				if got.Kind != Decide || got.GateUID != g.UID || got.Digest != g.Digest {
					t.Errorf("decided nothing: %+v", got)
				}
				return
			}
			want := Route{Kind: Tell, Person: "lucas", Gates: true}
			switch verb, _, _ := strings.Cut(tc.say, " "); verb {
			case "approve":
				want.Tell = fmt.Sprintf("Nothing was approved: %s. Read rev-%d for \"nginx\"; if it is right: `approve NEWER2`.", tc.doubt, g.Revision)
			case "reject":
				want.Tell = fmt.Sprintf("Nothing was rejected: %s. Open is rev-%d for \"nginx\"; if you mean that: `reject NEWER2 <why>`.", tc.doubt, g.Revision)
			default:
				want.Tell = fmt.Sprintf("Nothing was answered: %s. Read why \"nginx\" is stopped now; then answer `continue NEWER2`, `replan NEWER2 <advice>` or `abandon NEWER2`.", tc.doubt)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A code in front of what goes with a decision names one gate, and one that is over or unknown decides no other.
func TestCodes(t *testing.T) {
	yes := Route{Kind: Decide, Person: "lucas", WorkItem: "wi-1", Gate: "now", GateUID: "uid-now", Digest: "sha256:d", Evidence: "TypedCode"}
	told := func(text string) Route { return Route{Kind: Tell, Person: "lucas", Tell: text, Gates: true} }
	plan := View{Active: nginx(), Now: noon, Gates: []Gate{current(Plan, 2, time.Second), earlier(Plan, 1, "wi-1", time.Second, "")}}
	two := View{Active: nginx(), Now: noon, Gates: []Gate{current(Plan, 1, time.Second), rev(1, "wi-2", func(g *Gate) { g.Title, g.Code = "disk", "OTHER2" })}}
	halted := View{Active: nginx(), Now: noon, Gates: []Gate{current(Halt, 0, time.Second), earlier(Halt, 0, "wi-1", time.Second, "lucas")}}
	over := View{Active: nginx(), Now: noon, Gates: []Gate{earlier(Halt, 0, "wi-1", time.Second, "lucas")}}
	unshown := View{Active: nginx(), Now: noon, Gates: []Gate{current(Plan, 1, time.Second), rev(1, "wi-2", unseen, func(g *Gate) { g.Code = "OTHER2" })}}
	edit := func(r Route, approve bool, answer, text string) Route {
		r.Approve, r.Answer, r.Text = approve, answer, text
		return r
	}
	for name, tc := range map[string]struct {
		say  string
		v    View
		want Route
	}{
		"reject":                     {"reject newer2 use daily.txt", plan, edit(yes, false, "", "use daily.txt")},
		"reject one of two":          {"reject NEWER2: no", two, edit(yes, false, "", "no")},
		"reject without a reason":    {"reject NEWER2", plan, edit(yes, false, "", "")},
		"reject what is over":        {"reject EARLY2 no", plan, told("It is over. Open:\n• rev-2 for \"nginx\": `approve rev-2`")},
		"reject with a wrong code":   {"reject 7F3K2Q no", plan, told("Nothing here has the code 7F3K2Q. Open:\n• rev-2 for \"nginx\": `approve rev-2`")},
		"reject one not shown yet":   {"reject OTHER2 no", unshown, told("Nothing here has the code OTHER2. Open:\n• rev-1 for \"nginx\": `approve rev-1`")},
		"reject a halt by its code":  {"reject NEWER2", halted, told("\"nginx\" is stopped: answer `continue NEWER2`, `replan NEWER2 <advice>` or `abandon NEWER2`.")},
		"a word that may be a code":  {"reject please not this", plan, Route{Kind: Decide, Person: "lucas", WorkItem: "wi-1", Gate: "now", GateUID: "uid-now", Digest: "sha256:d", Evidence: "Typed", Text: "please not this"}},
		"continue":                   {"continue NEWER2", halted, edit(yes, true, "Continue", "")},
		"replan":                     {"replan newer2 use web2", halted, edit(yes, true, "Replan", "use web2")},
		"abandon":                    {"abandon NEWER2", halted, edit(yes, false, "Abandon", "")},
		"continue what was answered": {"continue EARLY2", halted, told("It is over. Open:\n• \"nginx\" is stopped: `continue NEWER2`, `replan NEWER2 <advice>` or `abandon NEWER2`")},
		"the same, nothing else":     {"continue EARLY2", over, told("It is over. Nothing else waits.")},
		"continue a plan":            {"continue NEWER2", plan, told("\"nginx\" is not stopped. Open:\n• rev-2 for \"nginx\": `approve rev-2`")},
		"continue by a wrong code":   {"continue 7F3K2Q", halted, told("Nothing here has the code 7F3K2Q. Open:\n• \"nginx\" is stopped: `continue NEWER2`, `replan NEWER2 <advice>` or `abandon NEWER2`")},
		"a sentence with no halt": {"continue WEB222 backup", View{}, Route{
			Kind: Open, Person: "lucas", MayInstruct: true, Title: "continue WEB222 backup", Text: "continue WEB222 backup",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, with(Event{ID: "$e", Room: "!r", Sender: lucas, Type: "m.text", Body: tc.say, At: noon}, tc.v)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What is advised is taken when it is typed next: while a revision alone may mean another plan, the code is named.
func TestAdviceThatIsTaken(t *testing.T) {
	const s = time.Second
	other := []Gate{current(Plan, 1, s), earlier(Plan, 1, "wi-0", s, "")}
	for name, tc := range map[string]struct {
		say   string
		gates []Gate
		want  string
	}{
		"a mistyped code":             {"approve ZZZZZZ", other, "No open plan has the code ZZZZZZ. Type exactly `approve NEWER2`, or `reject <why>`."},
		"a nod":                       {"yes", other, "That decides nothing here. Type exactly `approve NEWER2`, or `reject <why>`."},
		"a revision that is not open": {"approve rev-3", other, "No plan rev-3 waits for a decision here. Open:\n• rev-1 for \"nginx\": `approve NEWER2`"},
		"no exact approval":           {"approve rev1", other, "Nothing was approved: that is not exactly an approval. Type exactly `approve NEWER2`, or `reject <why>`."},
		"another number is no doubt":  {"yes", []Gate{current(Plan, 2, s), earlier(Plan, 1, "wi-1", s, "")}, "That decides nothing here. Type exactly `approve rev-2`, or `reject <why>`."},
		"long ago":                    {"yes", []Gate{current(Plan, 1, s), earlier(Plan, 1, "wi-0", 2*time.Minute, "")}, "That decides nothing here. Type exactly `approve rev-1`, or `reject <why>`."},
		"a stop after a stop":         {"yes", []Gate{current(Halt, 0, s), earlier(Halt, 0, "wi-0", s, "")}, "That decides nothing here. Type exactly `continue NEWER2`, `replan NEWER2 <advice>` or `abandon NEWER2`."},
	} {
		t.Run(name, func(t *testing.T) {
			v := View{Active: nginx(), Gates: tc.gates, Now: noon}
			said := func(body string) Route {
				return with(Event{ID: "$e", Room: "!r", Sender: lucas, Type: "m.text", Body: body, At: noon}, v)
			}
			if got := said(tc.say); got.Tell != tc.want {
				t.Errorf("told %q, want %q", got.Tell, tc.want)
			}
			_, advice, _ := strings.Cut(tc.want, ": `approve ")
			if advice == "" {
				_, advice, _ = strings.Cut(tc.want, "exactly `")
			} else {
				advice = "approve " + advice
			}
			advice, _, _ = strings.Cut(advice, "`")
			if got := said(advice); got.Kind != Decide || got.GateUID != "uid-now" {
				t.Errorf("%q, which was advised, is answered %+v", advice, got)
			}
		})
	}
}
