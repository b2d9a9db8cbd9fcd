package routing

import (
	"fmt"
	"time"
)

const (
	// Hindsight is how long before a message a gate may have ended and still be the one that its sender read.
	Hindsight = time.Minute
	// echo is the same for a gate that the sender ended: they know of it, but words that are typed twice mean one thing.
	echo = 20 * time.Second
	// glance is less than it takes to read a plan and type a decision about it.
	glance = 5 * time.Second
)

// said is when a message counts as sent. The homeserver of its sender tells the time, and is believed about the past only: a clock that
// is ahead must not put a message beyond the hindsight.
func (v View) said(e Event) time.Time {
	if !v.Now.IsZero() && v.Now.Before(e.At) {
		return v.Now
	}
	return e.At
}

// meant tells why words that name no one gate for good (bare ones, and a revision, which every item counts from 1) may not have meant
// the gate that they would decide; empty when they can have meant nothing else. An agent chooses when its next plan or halt comes, and
// could put it under the thumb of who is typing. The code of a gate names that one, and needs none of this. The words fit a gate by fits.
func (v View) meant(e Event, g Gate, fits func(Gate) bool) (doubt string) {
	if v.said(e).Before(g.ShownAt) {
		return "by its time this message was sent before " + name(g) + " was shown"
	}
	return v.echoed(e, g, fits)
}

// echoed tells why words may have meant another gate that they fit and that has ended.
func (v View) echoed(e Event, g Gate, fits func(Gate) bool) (doubt string) {
	at := v.said(e)
	who, _ := v.person(e.Sender)
	for _, o := range v.Gates {
		switch {
		case o.UID == g.UID, o.Open, !o.Glimpsed, !fits(o), o.EndedAt.Before(at.Add(-Hindsight)):
		case v.Thread != nil && o.WorkItem != g.WorkItem && o.Thread != g.Thread: // said in the thread of the one that is open, and not of both
		case o.EndedBy != who:
			return "you may have meant " + name(o) + " of " + quoted(o) + ", which " + became(o) + apart(o, g)
		case !o.EndedAt.Before(at.Add(-echo)), g.ShownAt.After(at.Add(-glance)):
			return "you decided " + name(o) + " of " + quoted(o) + " just now, and this may be the same message once more" + apart(o, g)
		}
	}
	return ""
}

// otherwise tells whether the sender ended a gate by another answer: this one is no repetition of that.
func (v View) otherwise(o Gate, e Event, answer string) bool {
	who, _ := v.person(e.Sender)
	return o.EndedBy == who && o.Answer != "" && o.Answer != answer
}

// apart tells two works of one title apart, behind a sentence that names the gate that ended.
func apart(ended, open Gate) string {
	if ended.Title != open.Title || ended.WorkItem == open.WorkItem || ended.ShownAt.IsZero() || open.ShownAt.IsZero() {
		return ""
	}
	shown := func(g Gate) string { return g.ShownAt.UTC().Format("15:04:05 UTC") }
	return fmt.Sprintf(" (that one was shown at %s; what is open has the same title and was shown at %s)", shown(ended), shown(open))
}

// became tells what has become of a gate, in a part of a sentence.
func became(g Gate) string {
	if g.Became == "" {
		return "has ended"
	}
	return g.Became
}

// name of a gate in a sentence.
func name(g Gate) string {
	if g.Kind == Halt {
		return "the stop"
	}
	return fmt.Sprintf("rev-%d", g.Revision)
}
