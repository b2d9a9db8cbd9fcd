package reducer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/doors"
)

func TestAPlanApprovedAndCarriedOut(t *testing.T) {
	w := newWorld(t)
	isWait(t, w.local())
	w.person("write the disk usage into a file")
	w.ask(Reply{Text: "Looking.", Wanted: []Wanted{want("fs_read", `{"path":"/a"}`)}})
	w.call("fs_read", done)
	w.ask(Reply{Wanted: []Wanted{want(SubmitPlan, `{"reason":"r","steps":[]}`)}})
	w.call(SubmitPlan, pending)
	isWait(t, w.local())
	if w.it().Waiting != Decision {
		t.Errorf("waiting for %q", w.it().Waiting)
	}
	w.platform(event.TopicPlan, "Approved")
	w.ask(Reply{Wanted: []Wanted{want("fs_write", `{"path":"/b"}`)}})
	w.call("fs_write", doors.ToolResult{Status: doors.Done, Step: 1})
	w.ask(Reply{Wanted: []Wanted{want(Finish, `{"summary":"It is in /b."}`)}})
	if _, ok := w.it().Next(w.env).(Say); !ok {
		t.Fatalf("the summary is not said before finish: %#v", w.it().Next(w.env))
	}
	w.local()
	w.call(Finish, done)
	isWait(t, w.local())
	if diff := cmp.Diff([]string{"It is in /b."}, w.said()); diff != "" {
		t.Error(diff)
	}
	var kinds []string
	for _, e := range w.log {
		kinds = append(kinds, string(e.Type))
	}
	if got := strings.Join(kinds, " "); !strings.Contains(got, "tool_result plan_submitted gate_opened user_message") {
		t.Errorf("events: %s", got)
	}
}

// A call that a person is asked about ends the turn; when they have decided, the model goes on and nothing is waited for any more.
func TestACallThatAPersonIsAskedAbout(t *testing.T) {
	w := newWorld(t)
	w.person("put this into a file")
	w.ask(Reply{Wanted: []Wanted{want("fs_write", `{"path":"/b"}`), want("fs_write", `{"path":"/c"}`)}})
	w.call("fs_write", pending)
	isWait(t, w.local()) // the second is not made
	if w.it().Waiting != Gate || w.it().Turn.Open {
		t.Errorf("waiting for %q, turn %+v", w.it().Waiting, w.it().Turn)
	}
	w.platform(event.TopicPlan, "Approved")
	if w.it().Waiting != Nothing {
		t.Errorf("still waiting for %q", w.it().Waiting)
	}
	w.ask(Reply{Wanted: []Wanted{want("fs_write", `{"path":"/b"}`)}})
	w.call("fs_write", doors.ToolResult{Status: doors.Done, Step: 1})
	w.ask(Reply{Wanted: []Wanted{want(Finish, `{"summary":"It is in /b."}`)}})
	w.local()
	w.call(Finish, done)
	isWait(t, w.local())
}

func TestHowATurnEnds(t *testing.T) {
	tests := map[string]struct {
		play    func(w *world)
		said    []string
		waiting Waiting
	}{
		"words alone are said, reminded once, then asked on the model's behalf": {
			play: func(w *world) {
				w.ask(Reply{Text: "There are three files."})
				w.ask(Reply{Text: "Anything else?"})
				w.local()
				w.call(AskHuman, pending)
			},
			said: []string{"There are three files.", "Anything else?\n\n" + noResult}, waiting: Question,
		},
		"the same words again are not said again, and what is asked for is": {
			play: func(w *world) {
				w.ask(Reply{Text: "All is well."})
				w.ask(Reply{Text: "All is well."})
				w.local()
				w.call(AskHuman, pending)
			},
			said: []string{"All is well.", noResult}, waiting: Question,
		},
		"without ask_human words end the turn, and that is said": {
			play: func(w *world) {
				w.env.CanAsk = false
				w.ask(Reply{Text: "There are three files."})
				w.ask(Reply{Text: "All is well."})
			},
			said: []string{"There are three files.", "All is well.\n\n" + noResult},
		},
		"without ask_human the same words again end the turn, and that is said": {
			play: func(w *world) {
				w.env.CanAsk = false
				w.ask(Reply{Text: "All is well."})
				w.ask(Reply{Text: "All is well."})
			},
			said: []string{"All is well.", noResult},
		},
		"words, then finish with the same words, are said once": {
			play: func(w *world) {
				w.ask(Reply{Text: "All is well."})
				w.ask(Reply{Wanted: []Wanted{want(Finish, `{"summary":"All is well."}`)}})
				w.call(Finish, done)
			},
			said: []string{"All is well."},
		},
		"words while a plan waits need no reminder": {
			play: func(w *world) {
				w.ask(Reply{Wanted: []Wanted{want(SubmitPlan, `{}`)}})
				w.call(SubmitPlan, pending)
				w.person("why this way?")
				w.ask(Reply{Text: "Because it is the least change."})
			},
			said: []string{"Because it is the least change."}, waiting: Decision,
		},
		"a question is in the room before it is asked": {
			play: func(w *world) {
				w.ask(Reply{Wanted: []Wanted{want(AskHuman, `{"question":"Which file?"}`)}})
				w.local()
				w.call(AskHuman, pending)
			},
			said: []string{"Which file?"}, waiting: Question,
		},
		"calls after the one that ends the turn are not made": {
			play: func(w *world) {
				w.ask(Reply{Wanted: []Wanted{want(SubmitPlan, `{}`), want("fs_write", `{}`)}})
				w.call(SubmitPlan, pending)
			},
			waiting: Decision,
		},
		"a halt ends the turn": {
			play: func(w *world) {
				w.ask(Reply{Wanted: []Wanted{want("fs_write", `{}`), want("fs_write", `{"path":"/c"}`)}})
				w.call("fs_write", doors.ToolResult{Status: doors.Halted, Reason: "CallMismatch"})
			},
			waiting: Release,
		},
		"a call that waits for a person ends the turn": {
			play: func(w *world) {
				w.ask(Reply{Wanted: []Wanted{want("fs_write", `{}`)}})
				w.call("fs_write", pending)
			},
			waiting: Gate,
		},
		"a request that failed for good is told and a person asked": {
			play: func(w *world) {
				a := w.it().Next(w.env).(AskModel)
				w.append(w.it().Failed(a, "The model refuses my key."))
				w.local()
				w.call(AskHuman, pending)
			},
			said: []string{"The model refuses my key."}, waiting: Question,
		},
		"without ask_human the words are said and the turn ends": {
			play: func(w *world) {
				w.env.CanAsk = false
				w.ask(Reply{})
				w.ask(Reply{})
				w.ask(Reply{})
			},
			said: []string{"The model gave 3 answers in a row that I could not use, so I stopped. Say how to go on, or try again later."},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.person("do it")
			tt.play(w)
			isWait(t, w.local())
			if diff := cmp.Diff(tt.said, w.said()); diff != "" {
				t.Error(diff)
			}
			if w.it().Waiting != tt.waiting {
				t.Errorf("waiting for %q, want %q", w.it().Waiting, tt.waiting)
			}
			if len(w.it().Open) > 0 {
				t.Errorf("open calls at the end: %v", w.it().Open)
			}
			w.person("and now?")
			if _, ok := w.local().(AskModel); !ok && !w.it().Finished {
				t.Errorf("the next message is not taken: %#v", w.it().Next(w.env))
			}
		})
	}
}

func TestAnswersThatCannotBeUsedGoBackToTheModelAndAreBounded(t *testing.T) {
	tests := map[string]struct {
		reply Reply
		want  string
		// told is what people read of it in the progress message, each time, and after the last if that differs.
		told, last string
	}{
		"unknown tool":       {Reply{Wanted: []Wanted{want("rm_rf", `{}`)}}, "no tool of that name", "✗ rm_rf: not run, there is no tool of that name", ""},
		"a nameless tool":    {Reply{Wanted: []Wanted{want("", `{}`)}}, "no tool of that name", "✗ a call without a name: not run, there is no tool of that name", ""},
		"broken JSON":        {Reply{Wanted: []Wanted{want("fs_read", `{"path":`)}}, "not a JSON object", "✗ fs_read: not run, arguments are not a JSON object: unexpected end of JSON input", ""},
		"arguments too long": {Reply{Wanted: []Wanted{want("fs_read", `{"path":"`+strings.Repeat("x", MaxArgs)+`"}`)}}, "is the limit", "✗ fs_read: not run, the arguments have 262155 bytes, and 262144 is the limit", ""},
		"empty":              {Reply{}, "", "✗ the model's answer was empty (asked again)", "✗ the model's answer was empty"},
		"unreadable":         {Reply{Problem: "your answer had 9000000 bytes"}, "", "✗ the model's answer had 9000000 bytes (asked again)", "✗ the model's answer had 9000000 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.person("do it")
			asked := 0
			for {
				e := w.local()
				if a, ok := e.(AskModel); ok {
					asked++
					w.append(w.it().Replied(a, tt.reply, check, w.env))
					continue
				}
				break
			}
			if asked != maxBad {
				t.Errorf("asked %d times, want %d", asked, maxBad)
			}
			w.call(AskHuman, pending)
			if tt.want != "" && !strings.Contains(strings.Join(w.results(), "\n"), tt.want) {
				t.Errorf("the model reads %q, want %q", w.results(), tt.want)
			}
			if len(w.said()) != 1 || !strings.Contains(w.said()[0], "could not use") {
				t.Errorf("people read %q", w.said())
			}
			if tt.last == "" {
				tt.last = tt.told
			}
			if diff := cmp.Diff([]string{tt.told, tt.told, tt.last}, w.progressed()); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}

// progressed are the lines of the progress message.
func (w *world) progressed() (out []string) {
	for _, o := range w.say {
		if o.Kind == doors.Progress {
			out = append(out, o.Text)
		}
	}
	return out
}

// However many calls a model wants at once, people read of the first that is too many and no further.
func TestTooManyCallsAreToldOnce(t *testing.T) {
	w := newWorld(t)
	w.person("do it")
	calls := make([]Wanted, 3*maxWanted)
	for i := range calls {
		calls[i] = want("fs_read", fmt.Sprintf(`{"path":"/%d"}`, i))
	}
	w.ask(Reply{Wanted: calls})
	if diff := cmp.Diff([]string{"✗ fs_read: not run, at most 16 calls in one answer"}, w.progressed()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestTwoCallsWithOneID(t *testing.T) {
	w := newWorld(t)
	w.person("do it")
	w.ask(Reply{Wanted: []Wanted{{ProviderID: "x", Tool: "fs_read", Args: `{"path":"/a"}`}, {ProviderID: "x", Tool: "fs_read", Args: `{"path":"/b"}`}, {Tool: "fs_read", Args: `{"path":"/c"}`}, {Tool: "fs_read", Args: `{"path":"/d"}`}}})
	ids := map[string]bool{}
	for _, c := range []string{"/a", "/c", "/d"} {
		got := w.call("fs_read", done)
		if !strings.Contains(got.Args, c) {
			t.Errorf("made %s, want %s", got.Args, c)
		}
		ids[got.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("our IDs: %v", ids)
	}
	if got := strings.Join(w.results(), "\n"); !strings.Contains(got, "two calls had one id") {
		t.Errorf("results: %s", got)
	}
}

func TestStormsAndLoopsEndTheTurn(t *testing.T) {
	tests := map[string]struct {
		call func(i int) Wanted
		res  doors.ToolResult
		made int
		said string
	}{
		"storm":                         {func(i int) Wanted { return want("fs_read", fmt.Sprintf(`{"path":"/%d"}`, i)) }, done, 12, "12 tool calls in one turn"},
		"loop":                          {func(int) Wanted { return want("fs_read", `{"path":"/a"}`) }, done, 4, "for the 5th time"},
		"loop written in two ways":      {func(i int) Wanted { return want("fs_read", []string{`{"a":1,"b":2}`, `{"b":2, "a":1}`}[i%2]) }, done, 4, "for the 5th time"},
		"plans that are refused":        {func(i int) Wanted { return want(SubmitPlan, fmt.Sprintf(`{"reason":"%d"}`, i)) }, doors.ToolResult{Status: doors.Refused}, 17, "17 tool calls in one turn"},
		"steps of a plan do not count":  {func(i int) Wanted { return want("fs_write", fmt.Sprintf(`{"path":"/%d"}`, i)) }, doors.ToolResult{Status: doors.Done, Step: 1}, 50, ""},
		"steps that failed are counted": {func(i int) Wanted { return want("fs_write", fmt.Sprintf(`{"path":"/%d"}`, i)) }, doors.ToolResult{Status: doors.Failed, Step: 1}, 12, "12 tool calls"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.person("do it")
			made := 0
			for made < 50 {
				switch e := w.local().(type) {
				case AskModel:
					w.append(w.it().Replied(e, Reply{Wanted: []Wanted{tt.call(made)}}, check, w.env))
					continue
				case CallTool:
					if e.Call.Origin == event.Model {
						w.append(w.it().Resulted(e.Call, tt.res, "x"))
						made++
						continue
					}
				}
				break
			}
			if made != tt.made {
				t.Errorf("%d calls were made, want %d", made, tt.made)
			}
			if tt.said == "" {
				return
			}
			w.call(AskHuman, pending)
			isWait(t, w.local())
			if got := strings.Join(w.said(), "\n"); !strings.Contains(got, tt.said) {
				t.Errorf("people read %q, want %q", got, tt.said)
			}
		})
	}
}

func TestTheThirdSameCallIsWarnedOf(t *testing.T) {
	w := newWorld(t)
	w.person("do it")
	var notes []bool
	for range 4 {
		w.ask(Reply{Wanted: []Wanted{want("fs_read", `{"path":"/a"}`)}})
		w.call("fs_read", done)
		var r event.Result
		if err := w.log[len(w.log)-1].Decode(&r); err != nil {
			t.Fatal(err)
		}
		notes = append(notes, r.Note != "")
	}
	if diff := cmp.Diff([]bool{false, false, true, true}, notes); diff != "" {
		t.Error(diff)
	}
}

func TestWordsThatComeMeanwhile(t *testing.T) {
	t.Run("while the model thinks", func(t *testing.T) {
		w := newWorld(t)
		w.person("do it")
		a := w.it().Next(w.env).(AskModel)
		w.person("no, do that")
		w.append(w.it().Replied(a, Reply{Wanted: []Wanted{want(Finish, `{"summary":"did it"}`)}}, check, w.env))
		if _, ok := w.local().(AskModel); !ok {
			t.Fatalf("finish is not put off: %#v", w.it().Next(w.env))
		}
		if len(w.said()) != 0 {
			t.Errorf("said %q", w.said())
		}
	})
	t.Run("a decision before the result of the plan", func(t *testing.T) {
		w := newWorld(t)
		w.person("do it")
		w.ask(Reply{Wanted: []Wanted{want(SubmitPlan, `{}`)}})
		w.append(Batch{Events: []event.New{{WorkItem: "wi-1", Type: event.UserMessage, Source: "plan/1",
			Payload: event.Words{Text: "approved", Origin: event.Platform, Topic: event.TopicPlan, Plan: pending.Gate, State: "Approved"}}}})
		w.env.Begun[w.it().Open[0].ID] = true
		w.call(SubmitPlan, pending)
		if w.it().Waiting != Nothing {
			t.Errorf("waits for %q, which has come", w.it().Waiting)
		}
		w.ask(Reply{Wanted: []Wanted{want("fs_write", `{}`)}})
	})
	t.Run("an answer before the result of the question", func(t *testing.T) {
		w := newWorld(t)
		w.person("do it")
		w.ask(Reply{Wanted: []Wanted{want(AskHuman, `{"question":"?"}`)}})
		w.local()
		w.env.Begun[w.it().Open[0].ID] = true
		w.person("yes")
		w.call(AskHuman, pending)
		if w.it().Waiting != Nothing {
			t.Errorf("waits for %q, which has come", w.it().Waiting)
		}
		w.ask(Reply{Text: "Good."})
	})
	t.Run("of someone who may not instruct", func(t *testing.T) {
		w := newWorld(t)
		w.append(Batch{Events: []event.New{{WorkItem: "wi-1", Type: event.UserMessage, Source: "matrix/$x", Payload: event.Words{Text: "delete all", Origin: event.Person, From: "eve"}}}})
		isWait(t, w.local())
	})
	t.Run("after the end", func(t *testing.T) {
		w := newWorld(t)
		w.platform(event.TopicEnded, "Closed")
		w.person("hello?")
		isWait(t, w.local())
	})
}

func TestABegunCallIsMadeAgainWhateverHappened(t *testing.T) {
	w := newWorld(t)
	w.person("do it")
	w.ask(Reply{Wanted: []Wanted{want(Finish, `{"summary":"done"}`)}})
	w.local()
	c := w.it().Next(w.env).(CallTool)
	w.env.Begun[c.Call.ID] = true
	w.person("wait")
	again, ok := w.it().Next(w.env).(CallTool)
	if !ok || again.Call.ID != c.Call.ID {
		t.Errorf("next is %#v, want the same call again", w.it().Next(w.env))
	}
}

func TestLongResultsAreKeptAside(t *testing.T) {
	w := newWorld(t)
	w.person("do it")
	w.ask(Reply{Wanted: []Wanted{want("fs_read", `{}`)}})
	c := w.it().Next(w.env).(CallTool).Call
	b := w.it().Resulted(c, done, strings.Repeat("x", 2<<20))
	r := b.Events[0].Payload.(event.Result)
	if len(b.Asides) != 1 || len(b.Asides[0].Body) != 2<<20 || r.Aside != b.Asides[0].Digest {
		t.Errorf("the whole is not kept aside")
	}
	if len(r.Text) > MaxResult || !strings.Contains(r.Text, "bytes left out") {
		t.Errorf("the event holds %d bytes without a marker", len(r.Text))
	}
}

func TestProgressLines(t *testing.T) {
	tests := map[string]struct {
		tool, args string
		res        doors.ToolResult
		want       string
	}{
		"done":       {"fs_read", `{"device":"web1","path":"/var/log/x","lines":200}`, done, "✓ web1 fs.read lines=200 path=/var/log/x"},
		"refused":    {"fs_write", `{"device":"web1","path":"/etc/x"}`, doors.ToolResult{Status: doors.Refused, Reason: "PathDenied", Message: "the manifest does not allow it"}, "✗ web1 fs.write path=/etc/x: refused, the manifest does not allow it"},
		"away":       {"exec", `{"device":"web1"}`, doors.ToolResult{Status: doors.Refused, Reason: "DeviceAway", Message: "web1 does not answer."}, "✗ web1 exec: not run, web1 does not answer."},
		"hidden":     {"fs_read", `{"path":"/a\u202e\nb"}`, done, `✓ fs_read path="/a\\u202e b"`},
		"no plan":    {SubmitPlan, `{"reason":"x","steps":[]}`, doors.ToolResult{Status: doors.Refused, Reason: "PlanNotReady", Message: "Step 1: no"}, "✗ submit_plan: refused, Step 1: no"},
		"more of it": {"fs_read", `{"path":"/x"}`, doors.ToolResult{Status: doors.Done, Output: json.RawMessage(`{"content":"x","truncated":true}`)}, "✓ fs_read path=/x (cut)"},
		"middle cut": {"exec", `{}`, doors.ToolResult{Status: doors.Done, Output: json.RawMessage(`{"stdout":"a\n[… 9 bytes left out …]\nb"}`)}, "✓ exec (cut)"},
		"too deep":   {"exec", `{}`, doors.ToolResult{Status: doors.Done, Output: json.RawMessage(`{"leftOut":"the result is too deep or too wide to show"}`)}, "✓ exec (cut)"},
		"whole":      {"fs_read", `{"path":"/x"}`, doors.ToolResult{Status: doors.Done, Output: json.RawMessage(`{"content":"[… 9 bytes left out …]","truncated":false}`)}, "✓ fs_read path=/x"},
		"long":       {"fs_read", `{"a":"` + strings.Repeat("a", 90) + `","b":"` + strings.Repeat("b", 90) + `"}`, doors.ToolResult{Status: doors.Failed, Message: "the disk is full"}, "✗ fs_read a=" + strings.Repeat("a", 80) + "… b=" + strings.Repeat("b", 26) + "…: failed, the disk is full"},
		"waits":      {"exec", `{"device":"web1","argv":["/usr/bin/x"]}`, doors.ToolResult{Status: doors.Pending, Reason: "AwaitingApproval", Message: "It was not run. End your turn.", Gate: "wi-1-rev-2", Revision: 2}, `⏳ web1 exec argv=["/usr/bin/x"]: waits for the approval of rev-2`},
		"not ended":  {"exec", `{}`, doors.ToolResult{Status: doors.Pending, Message: "It has not ended yet.", Gate: "wi-1-rev-2", Step: 1}, `⏳ exec: pending, It has not ended yet.`},
		"where":      {"fs_write", `{"content":"x","path":"/a"}`, done, "✓ fs_write path=/a content=x"},
		"not JSON":   {"fs_read", `{`, doors.ToolResult{Status: doors.Failed, Reason: "X"}, "✗ fs_read: failed, X"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := progress(Call{Call: event.Call{Tool: tt.tool, Args: tt.args}}, tt.res, ""); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A summary that was written before the calls beside it had ended is said, and ends the work, only if they succeeded.
func TestFinishBesideCallsThatDidNotSucceed(t *testing.T) {
	finish := want(Finish, `{"summary":"all is done"}`)
	for name, tt := range map[string]struct {
		wanted []Wanted
		status string
		ends   bool
	}{
		"after a call that succeeded":           {[]Wanted{want("fs_write", `{}`), finish}, doors.Done, true},
		"after one that failed":                 {[]Wanted{want("fs_write", `{}`), finish}, doors.Failed, false},
		"after one that was refused":            {[]Wanted{want("fs_write", `{}`), finish}, doors.Refused, false},
		"after one whose end nobody knows":      {[]Wanted{want("fs_write", `{}`), finish}, doors.Unknown, false},
		"after one that could not be made":      {[]Wanted{want("unknown", `{}`), finish}, "", false},
		"before one that could not be made":     {[]Wanted{finish, want("unknown", `{}`)}, "", true},
		"after the same again, which succeeded": {[]Wanted{want("fs_write", `{}`), want("fs_read", `{}`), finish}, doors.Refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.person("do it")
			w.ask(Reply{Wanted: tt.wanted})
			status := tt.status
			for {
				c, ok := w.local().(CallTool)
				if !ok || c.Call.Tool == Finish {
					if ok != tt.ends {
						t.Errorf("finish is called: %v, want %v", ok, tt.ends)
					}
					break
				}
				w.call(c.Call.Tool, doors.ToolResult{Status: status})
				status = doors.Done
			}
			if said := fmt.Sprint(w.say); strings.Contains(said, "all is done") != tt.ends {
				t.Errorf("said %s", said)
			}
			if _, asks := w.it().Next(w.env).(AskModel); asks == tt.ends {
				t.Errorf("the model is asked again: %v, want %v", asks, !tt.ends)
			}
		})
	}
}
