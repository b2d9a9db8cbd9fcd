package person_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
)

const password = "eight characters or more"

func TestMain(m *testing.M) { os.Exit(homeserver.Main(m)) }

// A script says everything every time: what is so already must be no error.
func TestScriptsMayRepeatThemselves(t *testing.T) {
	s := homeserver.Shared(t)
	ctx := t.Context()
	for range 2 {
		ops := s.RegisterUser(t, "repeat-ops", password, false)
		s.RegisterUser(t, "repeat-you", password, false)
		you, bot := s.Login(t, "repeat-you", password), s.Login(t, "repeat-ops", password)
		room, err := you.CreateRoom(ctx, person.RoomOptions{Alias: "repeat", Name: "Again"})
		if err != nil {
			t.Fatal(err)
		}
		if err := you.Invite(ctx, room, ops); err != nil {
			t.Fatal(err)
		}
		if found, err := you.Resolve(ctx, "#repeat:"+s.ServerName); err != nil || found != room {
			t.Fatalf("Resolve = %s, %v; want %s", found, err, room)
		}
		if _, err := bot.Join(ctx, room.String()); err != nil {
			t.Fatal(err)
		}
		members, err := you.Members(ctx, room)
		if err != nil {
			t.Fatal(err)
		}
		if len(members) != 2 {
			t.Errorf("in the room: %v", members)
		}
	}
}

func TestConversation(t *testing.T) {
	s := homeserver.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ops := s.RegisterUser(t, "talk-ops", password, false)
	s.RegisterUser(t, "talk-you", password, false)
	you, bot := s.Login(t, "talk-you", password), s.Login(t, "talk-ops", password)
	room, err := you.CreateRoom(ctx, person.RoomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := you.Invite(ctx, room, ops); err != nil {
		t.Fatal(err)
	}
	if _, err := bot.Join(ctx, room.String()); err != nil {
		t.Fatal(err)
	}

	asked, err := you.Say(ctx, room, "what is in /srv?", person.Where{})
	if err != nil {
		t.Fatal(err)
	}
	// The answer comes while the person is waiting for it.
	answered := make(chan error, 1)
	go func() {
		if _, err := bot.WaitFor(ctx, room, person.Want{Sender: you.UserID()}); err != nil {
			answered <- err
			return
		}
		_, err := bot.Say(ctx, room, "nisse", person.Where{Thread: asked})
		answered <- err
	}()
	answer, err := you.WaitFor(ctx, room, person.Want{Sender: ops, Text: regexp.MustCompile("^nisse$"), After: asked, Thread: asked})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if _, err := you.Say(ctx, room, "thanks", person.Where{ReplyTo: answer.ID, Thread: asked}); err != nil {
		t.Fatal(err)
	}
	if _, err := you.React(ctx, room, answer.ID, "👍"); err != nil {
		t.Fatal(err)
	}

	c, err := bot.Conversation(ctx, room)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"talk-you  what is in /srv?", "talk-ops  │ nisse", "│ 👍 talk-you", "│ ↳ talk-ops: nisse", "│ thanks"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

func TestConversationReadsEveryPage(t *testing.T) {
	s := homeserver.Shared(t)
	s.RegisterUser(t, "pages", password, false)
	p := s.Login(t, "pages", password)
	room, err := p.CreateRoom(t.Context(), person.RoomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const said = 230
	for range said {
		if _, err := p.Say(t.Context(), room, "again", person.Where{}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := p.Conversation(t.Context(), room)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Messages) != said {
		t.Errorf("read %d of %d messages", len(c.Messages), said)
	}
}

func TestWaitingInVainSaysWhatWasSaidInstead(t *testing.T) {
	s := homeserver.Shared(t)
	s.RegisterUser(t, "vain", password, false)
	p := s.Login(t, "vain", password)
	room, err := p.CreateRoom(t.Context(), person.RoomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Say(t.Context(), room, "hello?", person.Where{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = p.WaitFor(ctx, room, person.Want{Text: regexp.MustCompile("rev-1")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("found what nobody said, or gave up for another reason: %v", err)
	}
	want := regexp.MustCompile(`^no message matching "rev-1" in \d+s; the last of 1 messages was @vain:[^ ]+: "hello\?"$`)
	if !want.MatchString(err.Error()) {
		t.Errorf("the error is %q, want %s", err, want)
	}
}

func TestResume(t *testing.T) {
	s := homeserver.Shared(t)
	s.RegisterUser(t, "session", password, false)
	account := person.Account{Homeserver: s.BaseURL, Name: "session", Password: password}
	path := filepath.Join(t.TempDir(), "people", "session.json")
	device := func() string {
		t.Helper()
		p, err := person.Resume(t.Context(), account, path)
		if err != nil {
			t.Fatal(err)
		}
		return p.Client().DeviceID.String()
	}

	first := device()
	if second := device(); second != first {
		t.Errorf("a second session %s beside %s", second, first)
	}
	p, err := person.Resume(t.Context(), account, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Client().Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if third := device(); third == first {
		t.Error("kept a session that the server has ended")
	}
}
