package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/internal/testrig/person"
)

// caller is somebody about to do one thing.
type caller struct {
	account person.Account
	secret  string // to register with; may be empty
	session string // file that keeps the session
	out     io.Writer
}

// command does what args say; args[0] is name.
func (c caller) command(ctx context.Context, name string, args []string) error {
	if name == "register" {
		return c.register(ctx, args)
	}
	do, known := map[string]func(context.Context, *person.Person, []string) error{
		"create-room": c.createRoom,
		"invite":      c.invite,
		"join":        c.join,
		"members":     c.members,
		"say":         c.say,
		"react":       c.react,
		"wait":        c.wait,
		"show":        c.show,
	}[name]
	if !known {
		return fmt.Errorf("there is no command %q: %w", name, errUsage)
	}
	p, err := person.Resume(ctx, c.account, c.session)
	if err != nil {
		return err
	}
	return do(ctx, p, args[1:])
}

func (c caller) register(ctx context.Context, args []string) error {
	flags := newFlags("register")
	admin := flags.Bool("admin", false, "")
	if err := parse(flags, args[1:]); err != nil {
		return err
	}
	if c.secret == "" {
		return fmt.Errorf("there is no registration secret: -home must be the directory of a homeserver that hack/homeserver/up.sh brought up")
	}
	return person.Register(ctx, c.account, c.secret, *admin)
}

func (c caller) createRoom(ctx context.Context, p *person.Person, args []string) error {
	flags := newFlags("create-room")
	alias, name := flags.String("alias", "", ""), flags.String("name", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	room, err := p.CreateRoom(ctx, person.RoomOptions{Alias: *alias, Name: *name, Invite: users(flags.Args())})
	if err != nil {
		return err
	}
	return c.print(room)
}

func (c caller) invite(ctx context.Context, p *person.Person, args []string) error {
	flags := newFlags("invite")
	where := flags.String("room", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	room, err := p.Resolve(ctx, *where)
	if err != nil {
		return err
	}
	for _, who := range users(flags.Args()) {
		if err := p.Invite(ctx, room, who); err != nil {
			return err
		}
	}
	return nil
}

func (c caller) join(ctx context.Context, p *person.Person, args []string) error {
	if err := want(args, "join ROOM", 1); err != nil {
		return err
	}
	room, err := p.Join(ctx, args[0])
	if err != nil {
		return err
	}
	return c.print(room)
}

func (c caller) members(ctx context.Context, p *person.Person, args []string) error {
	if err := want(args, "members ROOM", 1); err != nil {
		return err
	}
	room, err := p.Resolve(ctx, args[0])
	if err != nil {
		return err
	}
	members, err := p.Members(ctx, room)
	if err != nil {
		return err
	}
	slices.Sort(members)
	for _, who := range members {
		if err := c.print(who); err != nil {
			return err
		}
	}
	return nil
}

func (c caller) say(ctx context.Context, p *person.Person, args []string) error {
	flags := newFlags("say")
	where := flags.String("room", "", "")
	reply, thread := flags.String("reply", "", ""), flags.String("thread", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := want(flags.Args(), "say -room ROOM TEXT", 1); err != nil {
		return err
	}
	room, err := p.Resolve(ctx, *where)
	if err != nil {
		return err
	}
	sent, err := p.Say(ctx, room, flags.Arg(0), person.Where{ReplyTo: id.EventID(*reply), Thread: id.EventID(*thread)})
	if err != nil {
		return err
	}
	return c.print(sent)
}

func (c caller) react(ctx context.Context, p *person.Person, args []string) error {
	flags := newFlags("react")
	where := flags.String("room", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := want(flags.Args(), "react -room ROOM EVENT EMOJI", 2); err != nil {
		return err
	}
	room, err := p.Resolve(ctx, *where)
	if err != nil {
		return err
	}
	sent, err := p.React(ctx, room, id.EventID(flags.Arg(0)), flags.Arg(1))
	if err != nil {
		return err
	}
	return c.print(sent)
}

func (c caller) wait(ctx context.Context, p *person.Person, args []string) error {
	flags := newFlags("wait")
	where, from, match := flags.String("room", "", ""), flags.String("from", "", ""), flags.String("match", "", "")
	after, thread := flags.String("after", "", ""), flags.String("thread", "", "")
	timeout := flags.Duration("timeout", time.Minute, "")
	idOnly := flags.Bool("id", false, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := want(flags.Args(), "wait -room ROOM …", 0); err != nil {
		return err
	}
	text, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-match: %w", err)
	}
	room, err := p.Resolve(ctx, *where)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	got, err := p.WaitFor(ctx, room, person.Want{
		Sender: id.UserID(*from), Text: text, After: id.EventID(*after), Thread: id.EventID(*thread),
	})
	if err != nil {
		return err
	}
	if *idOnly {
		return c.print(got.ID)
	}
	return c.print(got.Body)
}

func (c caller) show(ctx context.Context, p *person.Person, args []string) error {
	flags := newFlags("show")
	thread := flags.String("thread", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := want(flags.Args(), "show ROOM", 1); err != nil {
		return err
	}
	room, err := p.Resolve(ctx, flags.Arg(0))
	if err != nil {
		return err
	}
	conversation, err := p.Conversation(ctx, room)
	if err != nil {
		return err
	}
	if *thread != "" {
		conversation.Messages = slices.DeleteFunc(conversation.Messages, func(m person.Message) bool {
			return m.ID != id.EventID(*thread) && m.Thread != id.EventID(*thread)
		})
	}
	return conversation.Print(c.out)
}

func (c caller) print(value any) error {
	if _, err := fmt.Fprintln(c.out, value); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func users(names []string) []id.UserID {
	ids := make([]id.UserID, len(names))
	for i, name := range names {
		ids[i] = id.UserID(name)
	}
	return ids
}

func want(args []string, form string, n int) error {
	if len(args) != n {
		return fmt.Errorf("%s, not %d arguments (quote text): %w", form, len(args), errUsage)
	}
	return nil
}
