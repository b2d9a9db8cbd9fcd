package modelcheck

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
)

// process is the runtime: the real core over the real log, one step at a time. It may be killed before and after every commit and
// every exchange with a door.
type process struct {
	h       *house
	dir     string
	log     *eventlog.Log
	core    *core.Core
	ear     *core.Ear
	mail    *doors.Inbox // brought by the ear, not yet in the log
	flight  *core.Flight
	since   time.Time
	attempt *request // of the flight's call
	// fuse: boundaries until it is killed; 0: it is not.
	fuse int
	// born: the letters that were there when it started.
	born   int
	deaths int
}

// killed is what a process dies of.
type killed struct{}

func newProcess(h *house) *process { return &process{h: h, dir: filepath.Join(h.dir, "runtime")} }

// boundary at which the process may be killed.
func (p *process) boundary() {
	if p.fuse > 0 {
		if p.fuse--; p.fuse == 0 {
			panic(killed{})
		}
	}
}

// Each line of the log is written right after a commit.
func (p *process) Enabled(context.Context, slog.Level) bool { return true }
func (p *process) WithAttrs([]slog.Attr) slog.Handler       { return p }
func (p *process) WithGroup(string) slog.Handler            { return p }
func (p *process) Handle(_ context.Context, r slog.Record) error {
	p.h.note("  %s", line(r))
	p.boundary()
	return nil
}
func (p *process) clock() time.Time { return p.h.now }

func line(r slog.Record) string {
	s := r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "source", "intent_id", "id", "subject", "type", "verdict":
			s += " " + a.Value.String()
		}
		return true
	})
	return s
}

// commits is the log's clock, read in every commit before anything is on disk.
func (p *process) commits() time.Time {
	if p.h.mutant.logForgets {
		p.must(os.RemoveAll(p.dir + ".before"))
		p.must(os.CopyFS(p.dir+".before", os.DirFS(p.dir)))
	}
	p.boundary()
	return p.h.now
}

func (p *process) must(err error) { p.h.must(err) }

// do a step of the process, in which it may be killed.
func (p *process) do(f func(ctx context.Context) error) {
	if p.core == nil {
		return
	}
	if p.fuse = 0; p.h.mishap(0.08) {
		p.fuse = 1 + p.h.rng.IntN(6)
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			p.h.note("the runtime is killed")
			p.die()
		}
	}()
	p.must(f(context.Background()))
	p.fuse = 0
}

func (p *process) start() {
	if p.core != nil {
		return
	}
	p.fuse = 0
	log, err := eventlog.Open(context.Background(), p.dir, "ops", p.commits, slog.New(p))
	p.must(err)
	p.log, p.born = log, len(p.h.room.all)
	p.core = core.New(core.Parts{Config: doors.RuntimeConfig{Agent: "ops", AgentUID: "agent", ToolCallsPerTurn: 12}, Log: log, Logger: slog.New(p),
		Meter: core.NewMeter(prometheus.NewRegistry()), Now: p.clock, Settle: 15 * time.Second, Queued: func() {}})
	p.do(func(ctx context.Context) error {
		if p.h.mutant.bootForgets {
			intents, err := log.Intents(ctx)
			p.must(err)
			for _, i := range intents {
				_, err := log.Commit(ctx, eventlog.Write{Drop: i.ID})
				p.must(err)
			}
		}
		p.ear = p.core.Ear(p.h.room)
		return p.core.Boot(ctx)
	})
}

func (p *process) die() {
	if p.core == nil {
		return
	}
	p.deaths++
	p.close()
	p.core, p.ear, p.mail, p.flight, p.attempt = nil, nil, nil, nil, nil
	if before := p.dir + ".before"; p.h.mutant.logForgets {
		if _, err := os.Stat(before); err == nil {
			p.must(os.RemoveAll(p.dir))
			p.must(os.Rename(before, p.dir))
		}
	}
}

func (p *process) close() {
	if p.log != nil {
		_ = p.log.Close()
		p.log = nil
	}
}

func (p *process) observe() {
	p.do(func(ctx context.Context) error { return p.core.Observe(ctx, p.h.seen) })
}

func (p *process) advance() {
	p.do(func(ctx context.Context) (err error) {
		if p.flight == nil {
			p.flight, err = p.core.Advance(ctx)
			p.since = p.h.now
			return err
		}
		if p.core.GiveUp() {
			p.h.note("the request is given up")
			p.flight = nil
			return p.core.Land(ctx, core.Landing{})
		}
		return nil
	})
}

// fly one leg: the model answers, or an attempt at a call begins or ends.
func (p *process) fly() {
	p.do(func(ctx context.Context) error {
		f := p.flight
		switch {
		case f == nil:
			return nil
		case f.Ask != nil:
			r, err := p.core.Request(ctx, f.Ask, p.h.offer)
			p.must(err)
			p.boundary()
			a := &core.Answered{Tools: p.h.offer}
			if p.h.mishap(0.02) {
				a.Err = &model.Error{Kind: model.Final, Err: errors.New("the model refuses")}
			} else {
				a.Answer = p.h.answer(f.Ask, r)
			}
			p.boundary()
			p.flight = nil
			return p.core.Land(ctx, core.Landing{Ask: a})
		case p.attempt == nil:
			p.boundary()
			p.attempt = p.h.request(f)
			p.boundary()
			return nil
		case p.attempt.answer == nil:
			return nil
		}
		r := doorclient.FromDoor(*p.attempt.answer)
		p.attempt = nil
		final := core.Attempted(r, nil, p.h.now.Sub(p.since))
		if final == nil {
			return nil
		}
		p.boundary()
		p.flight = nil
		return p.core.Land(ctx, core.Landing{Call: final})
	})
}

// loseAnswer of the attempt that is under way; the broker goes on with it.
func (p *process) loseAnswer() { p.attempt = nil }

func (p *process) listen() {
	p.do(func(ctx context.Context) error {
		if p.mail != nil {
			in := *p.mail
			p.mail = nil
			if err := p.core.Receive(ctx, in); err != nil {
				return err
			}
			p.ear.Heard(in)
			return nil
		}
		in, _, err := p.ear.Listen(ctx)
		if err != nil || len(in.Messages) == 0 {
			return nil
		}
		p.mail = &in
		if p.h.mutant.acksFirst {
			p.ear.Heard(in)
			_ = p.h.room.Ack(ctx, in.Epoch, in.Messages[len(in.Messages)-1].Seq)
		}
		return nil
	})
}

func (p *process) say() {
	p.do(func(ctx context.Context) error {
		_, _, _ = p.core.Say(ctx, p.h.room) // an error is tried again
		return nil
	})
}

// idle: nothing is under way, and nothing is left to do or to say.
func (p *process) idle() bool {
	if p.core == nil || p.flight != nil || p.mail != nil {
		return false
	}
	_, queued, err := p.log.NextOut(context.Background())
	p.must(err)
	return !queued && p.knows("ended/wi")
}

// knows tells whether the log has something from a source.
func (p *process) knows(source string) bool {
	found := false
	p.must(p.log.Each(context.Background(), func(e event.Event) error {
		found = found || e.Source == source
		return nil
	}))
	return found
}

// request of the flight's call at the broker: one attempt.
func (h *house) request(f *core.Flight) *request {
	r := &request{item: f.Item, id: f.Call.ID, tool: f.Call.Tool, args: json.RawMessage(f.Call.Args)}
	body := r.tool + " " + string(r.args)
	if _, again := h.made[r.id]; again && h.mutant.newCallIDs {
		r.id += "-again"
	}
	if have, ok := h.made[r.id]; ok && have != body {
		h.Fatalf("one call ID with two calls: %s and %s", have, body)
	}
	if _, again := h.made[r.id]; !again && r.tool == "finish" {
		h.endsHeard()
	}
	h.made[r.id] = body
	h.note("%s %s", r.id, body)
	h.broker = append(h.broker, r)
	return r
}

// endsHeard: an item does not end on words that waited before the process began.
func (h *house) endsHeard() {
	for _, l := range h.room.all[:h.rt.born] {
		if !h.rt.knows("matrix/" + l.ID) {
			h.Fatalf("the item ends, and %q was not read", l.Text)
		}
	}
}
