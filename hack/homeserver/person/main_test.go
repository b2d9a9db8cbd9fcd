package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"nisse.io/nisse/internal/testrig/homeserver"
)

func TestMain(m *testing.M) { os.Exit(homeserver.Main(m)) }

// The conversation a shell script would lead, command by command.
func TestCommands(t *testing.T) {
	s := homeserver.Shared(t)
	do := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		if err := run(t.Context(), append([]string{"-home", s.Dir}, args...), &out); err != nil {
			t.Fatalf("person %q: %v", args, err)
		}
		return strings.TrimSuffix(out.String(), "\n")
	}
	room, ops := "#chat:"+s.ServerName, "@ops:"+s.ServerName

	do("-as", "you", "register", "-admin")
	do("-as", "ops", "register")
	created := do("-as", "you", "create-room", "-alias", "chat", "-name", "Chat", ops)
	if joined := do("-as", "ops", "join", room); joined != created {
		t.Errorf("joined %s, not %s", joined, created)
	}
	do("-as", "you", "invite", "-room", room, ops)
	if members := do("-as", "you", "members", room); members != ops+"\n@you:"+s.ServerName {
		t.Errorf("members:\n%s", members)
	}
	asked := do("-as", "you", "say", "-room", room, "what is in /srv?")
	answered := do("-as", "ops", "say", "-room", room, "-thread", asked, "nisse")
	if got := do("-as", "you", "wait", "-room", room, "-from", ops, "-after", asked, "-thread", asked, "-match", "^n", "-id"); got != answered {
		t.Errorf("waited for %s, got %s", answered, got)
	}
	if got := do("-as", "you", "wait", "-room", room, "-from", ops); got != "nisse" {
		t.Errorf("waited for %q, got %q", "nisse", got)
	}
	do("-as", "you", "react", "-room", room, answered, "👍")
	do("-as", "you", "say", "-room", room, "-reply", answered, "good")
	conversation := do("-as", "you", "show", room)
	for _, line := range []string{"you  what is in /srv?", "ops  │ nisse", "👍 you", "↳ ops: nisse", "good"} {
		if !strings.Contains(conversation, line) {
			t.Errorf("no %q in\n%s", line, conversation)
		}
	}
	if thread := do("-as", "you", "show", "-thread", asked, room); strings.Count(thread, "\n") != 2 || strings.Contains(thread, "good") {
		t.Errorf("a question, its answer and a reaction are the thread, not\n%s", thread)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	s := homeserver.Shared(t)
	s.RegisterUser(t, "clumsy", "password-of-clumsy", false)
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"nobody speaks", []string{"-home", s.Dir, "show", "#x:y"}, "-as says who speaks"},
		{"no homeserver", []string{"-home", t.TempDir(), "-as", "you", "show", "#x:y"}, "hack/homeserver/up.sh"},
		{"no command", []string{"-home", s.Dir, "-as", "clumsy"}, `no command ""`},
		{"unknown command", []string{"-home", s.Dir, "-as", "clumsy", "sing"}, `no command "sing"`},
		{"no secret", []string{"-home", t.TempDir(), "-homeserver", s.BaseURL, "-as", "x", "register"}, "registration secret"},
		{"unquoted text", []string{"-home", s.Dir, "-as", "clumsy", "say", "-room", "#x:y", "two", "words"}, "quote text"},
		{"no room", []string{"-home", s.Dir, "-as", "clumsy", "say", "hello"}, "names no room"},
		{"bad pattern", []string{"-home", s.Dir, "-as", "clumsy", "wait", "-room", "#x:y", "-match", "("}, "-match"},
		{"unknown flag", []string{"-home", s.Dir, "-as", "clumsy", "wait", "-rom", "#x:y"}, "-rom"},
		{"wrong password", []string{"-home", s.Dir, "-as", "stranger", "show", "#x:y"}, "log in as stranger"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := run(t.Context(), tc.args, &strings.Builder{})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v does not say %q", err, tc.says)
			}
			if err != nil && tc.name == "unknown command" && !errors.Is(err, errUsage) {
				t.Error("the usage is not shown")
			}
		})
	}
}
