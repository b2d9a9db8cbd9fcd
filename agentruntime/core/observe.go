package core

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// Observe takes a snapshot for the truth, and writes what it tells that the log has not yet heard.
func (c *Core) Observe(ctx context.Context, s doors.Snapshot) error {
	if s.Agent != c.Config.Agent {
		return fmt.Errorf("the broker takes this pod for agent %q, and its configuration says %q; the token and the configuration do not belong together", s.Agent, c.Config.Agent)
	}
	was, is := active(c.work), active(&s)
	c.work = &s
	if was != is {
		telemetry.Changed(ctx, c.Logger, "work_item.switched", telemetry.Event{Agent: c.Config.Agent, TaskID: is, Cause: "work"}, slog.String("from", was), slog.String("to", is))
	}
	w := eventlog.Write{Cause: "work"}
	if s.Active != nil {
		c.Log.Correlate(s.Active.Name, s.Active.CorrelationID)
		w.Events = told(*s.Active)
	}
	for _, e := range s.Ended {
		if it := c.state.Item(e.Name); it.Last > 0 && !it.Ended {
			w.Events = append(w.Events, event.New{WorkItem: e.Name, Type: event.UserMessage, Source: "ended/" + e.Name,
				Payload: event.Words{Text: "The work item is over: " + e.Result + ".", Origin: event.Platform, Topic: event.TopicEnded, State: e.State}})
		}
	}
	// The log would leave out what it has; not asking it again keeps a quiet agent from touching its disk.
	w.Events = slices.DeleteFunc(w.Events, func(e event.New) bool { return c.heard[e.Source] })
	if len(w.Events) == 0 {
		return nil
	}
	if err := c.write(ctx, w); err != nil {
		return err
	}
	for _, e := range w.Events {
		c.heard[e.Source] = true
	}
	return nil
}

func active(s *doors.Snapshot) string {
	if s == nil || s.Active == nil {
		return ""
	}
	return s.Active.Name
}

// told is what the snapshot of an item says in words, each with a source that makes it said once.
func told(i doors.Item) []event.New {
	var out []event.New
	add := func(source string, w event.Words) {
		w.Origin = event.Platform
		out = append(out, event.New{WorkItem: i.Name, Type: event.UserMessage, Source: source, Payload: w})
	}
	if i.Request != "" {
		add("request/"+i.UID, event.Words{Topic: event.TopicRequest, Text: "This work item was made by hand. What is asked:\n" + i.Request})
	}
	if p := i.Plan; p != nil {
		if text := decided(*p); text != "" {
			add(fmt.Sprintf("plan/%s/%s/%s", i.UID, p.Name, p.State), event.Words{Topic: event.TopicPlan, Plan: p.Name, State: p.State, Text: text})
		}
	}
	if a := i.Answer; a != nil {
		if text := answered(*a); text != "" {
			add(fmt.Sprintf("answer/%s/%s", i.UID, a.Gate), event.Words{Topic: event.TopicAnswer, State: a.Answer, Text: text})
		}
	}
	return out
}

func decided(p doors.Plan) string {
	who := sanitize.Line(p.Person, 80)
	if who == "" {
		who = "a person"
	}
	if p.Call {
		return call(p, who)
	}
	switch p.State {
	case "Approved":
		if p.Closed {
			return ""
		}
		return fmt.Sprintf("Plan rev-%d was approved by %s. Carry out its steps now, in order and exactly as submitted.", p.Revision, who)
	case "Rejected":
		text := fmt.Sprintf("Plan rev-%d was rejected by %s; nothing of it was run.", p.Revision, who)
		if p.Feedback != "" {
			text += " They wrote:\n" + quote(p.Feedback)
		}
		return text
	case "NotReady":
		if p.Feedback == "" {
			return "" // its gate is about to open
		}
		return fmt.Sprintf("Plan rev-%d could not be shown to anybody and will not run. Submit another plan. What was wrong:\n%s", p.Revision, quote(p.Feedback))
	case "Expired":
		return fmt.Sprintf("Plan rev-%d expired before anybody decided; nothing of it was run. Ask whether it is still wanted, or submit it again.", p.Revision)
	case "Superseded":
		return fmt.Sprintf("Plan rev-%d was replaced and will not run.", p.Revision)
	}
	return ""
}

// call tells what became of a call that a person was asked about.
func call(p doors.Plan, who string) string {
	what := fmt.Sprintf("The call that was asked about as rev-%d", p.Revision)
	if len(p.Steps) == 1 {
		what += fmt.Sprintf(" (%s on %s)", sanitize.Line(p.Steps[0].Capability, 64), sanitize.Line(p.Steps[0].Device, 63))
	}
	switch {
	case p.State == "Approved" && p.Closed:
		return ""
	case p.State == "Approved":
		return what + " was approved by " + who + ". Make exactly that call again now, with the same arguments; it runs once."
	case p.State == "Rejected":
		text := what + " was rejected by " + who + "; it was not run. Do not make it again."
		if p.Feedback != "" {
			text += " They wrote:\n" + quote(p.Feedback)
		}
		return text
	case p.State == "NotReady" && p.Feedback != "":
		return what + " could not be shown to anybody and will not run. What was wrong:\n" + quote(p.Feedback)
	case p.State == "Expired":
		return what + " expired before anybody decided; it was not run. Ask whether it is still wanted, or make it again."
	case p.State == "Superseded":
		return what + " was dropped and will not run."
	}
	return ""
}

func answered(a doors.Answer) string {
	who := sanitize.Line(a.Person, 80)
	if who == "" {
		who = "a person"
	}
	var text string
	switch strings.ToLower(a.Answer) {
	case "continue":
		text = fmt.Sprintf("%s answered: continue. Go on from where things stand now.", who)
		switch a.Settled {
		case "Succeeded":
			text = fmt.Sprintf("%s answered: continue. They looked, and the step whose outcome was unknown was done. Go on with what comes after it.", who)
		case "Failed":
			text = fmt.Sprintf("%s answered: continue. They looked, and the step whose outcome was unknown was not done. Its plan is over and nothing more of it will run. Read what you need and submit a new one.", who)
		}
	case "replan":
		text = fmt.Sprintf("%s answered: replan. The plan so far is closed and will not run. Read what you need and submit a new one.", who)
	default:
		return "" // abandoned: the item ends
	}
	if a.Text != "" {
		text += " They wrote:\n" + quote(a.Text)
	}
	return text
}

// quote keeps a person's lines from looking like ours.
func quote(s string) string { return "> " + strings.ReplaceAll(s, "\n", "\n> ") }
