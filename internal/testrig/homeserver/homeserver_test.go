package homeserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"

	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
)

const password = "eight characters or more"

func TestMain(m *testing.M) { os.Exit(homeserver.Main(m)) }

func TestMessageRoundTrip(t *testing.T) {
	s := homeserver.Shared(t)
	lucas := s.RegisterUser(t, "lucas", password, false)
	s.RegisterUser(t, "ops", password, false)
	alice, bot := s.Login(t, "lucas", password), s.Login(t, "ops", password)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	room, err := alice.CreateRoom(ctx, person.RoomOptions{Alias: "roundtrip", Invite: nil})
	if err != nil {
		t.Fatal(err)
	}
	if err := alice.Invite(ctx, room, bot.UserID()); err != nil {
		t.Fatal(err)
	}
	if joined, err := bot.Join(ctx, "#roundtrip:"+s.ServerName); err != nil || joined != room {
		t.Fatalf("Join by alias = %s, %v; want %s", joined, err, room)
	}
	if _, err := alice.Say(ctx, room, "what is in /srv/nisse?", person.Where{}); err != nil {
		t.Fatal(err)
	}
	got, err := bot.WaitFor(ctx, room, person.Want{Sender: lucas, Text: regexp.MustCompile(`/srv/nisse`)})
	if err != nil {
		t.Fatal(err)
	}
	if got.Body != "what is in /srv/nisse?" {
		t.Errorf("the bot reads %q", got.Body)
	}
}

// A session and what was said must survive the homeserver's going away, however it goes.
func TestRestartKeepsSessionAndRooms(t *testing.T) {
	for _, tc := range []struct {
		name string
		down func(*homeserver.Server, testing.TB)
	}{
		{"stopped", (*homeserver.Server).Stop},
		{"killed", (*homeserver.Server).Kill},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := homeserver.Start(t, homeserver.Options{ServerName: "own.local"})
			s.RegisterUser(t, "lucas", password, true)
			p := s.Login(t, "lucas", password)
			room, err := p.CreateRoom(t.Context(), person.RoomOptions{Name: "Kept"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Say(t.Context(), room, "before", person.Where{}); err != nil {
				t.Fatal(err)
			}

			tc.down(s, t)
			if _, err := http.Get(s.BaseURL + "/_matrix/client/versions"); err == nil {
				t.Fatal("it still answers")
			}
			s.Restart(t)

			c, err := p.Conversation(t.Context(), room)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Messages) != 1 || c.Messages[0].Body != "before" {
				t.Errorf("after the restart the room holds %+v", c.Messages)
			}
		})
	}
}

func TestTightRateLimitsAnswer429(t *testing.T) {
	s := homeserver.Start(t, homeserver.Options{TightRateLimits: true})
	s.RegisterUser(t, "hasty", password, false)
	p := s.Login(t, "hasty", password)
	room, err := p.CreateRoom(t.Context(), person.RoomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Client().DefaultHTTPRetries = 0
	for i := range 10 {
		if s.Implementation == "dendrite" { // it limits much, but not the sending of messages
			_, err = p.Client().Whoami(t.Context())
		} else {
			_, err = p.Client().SendText(t.Context(), room, fmt.Sprint("message ", i))
		}
		if err == nil {
			continue
		}
		var answer mautrix.HTTPError
		if !errors.As(err, &answer) || answer.Response.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("request %d: %v; want status 429", i, err)
		}
		if after, ok := answer.RespError.ExtraData["retry_after_ms"].(float64); !ok || after <= 0 {
			t.Errorf("the answer names no time to retry after: %v", answer.RespError.ExtraData)
		}
		return
	}
	t.Error("ten requests in a row met no limit")
}

// The same person's transaction id must give the same event: the gateway's outbox leans on it.
func TestTransactionIDIsIdempotent(t *testing.T) {
	s := homeserver.Shared(t)
	s.RegisterUser(t, "twice", password, false)
	p := s.Login(t, "twice", password)
	room, err := p.CreateRoom(t.Context(), person.RoomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	content := &event.MessageEventContent{MsgType: event.MsgText, Body: "once"}
	same := mautrix.ReqSendEvent{TransactionID: "outbox-1"}
	first, err := p.Client().SendMessageEvent(t.Context(), room, event.EventMessage, content, same)
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Client().SendMessageEvent(t.Context(), room, event.EventMessage, content, same)
	if err != nil {
		t.Fatal(err)
	}
	if first.EventID != second.EventID {
		t.Errorf("two events: %s and %s", first.EventID, second.EventID)
	}
}
