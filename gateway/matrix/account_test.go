package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/testrig"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
)

const password = "correct horse battery"

func TestMain(m *testing.M) {
	testrig.Abreast(4)
	os.Exit(homeserver.Main(m))
}

// desk takes everything as words, and fails as often as it is told to.
type desk struct {
	mu   sync.Mutex
	fail int
}

var errDesk = errors.New("told to fail")

func (d *desk) Take(_ context.Context, tx *store.Tx, m matrix.Message) error {
	if _, err := tx.AddInbound(store.Inbound{
		EventID: m.Event.ID, Agent: "ops", Room: m.Event.Room, Sender: m.Event.Sender, At: m.Event.At, Raw: m.Raw,
		Route: routing.Route{Kind: routing.Words, Text: m.Event.Body},
	}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail > 0 {
		d.fail--
		return errDesk
	}
	return nil
}

// world is a room with a person in it, and an account of ours that can be started and stopped.
type world struct {
	t     *testing.T
	hs    *homeserver.Server
	base  string // what the account takes for the homeserver
	you   *person.Person
	room  id.RoomID
	bot   id.UserID
	gates id.UserID
	dir   string
	desk  *desk
	store *store.Store
	stop  func()

	mu     sync.Mutex
	states []matrix.State
}

// build a world on a homeserver. The name keeps its users apart from other tests'.
func build(t *testing.T, hs *homeserver.Server, name string) *world {
	t.Helper()
	w := &world{t: t, hs: hs, base: hs.BaseURL, dir: t.TempDir(), desk: &desk{}}
	hs.RegisterUser(t, name+"-you", password, false)
	w.bot = hs.RegisterUser(t, name+"-ops", password, false)
	w.gates = hs.RegisterUser(t, name+"-gates", password, false)
	w.you = hs.Login(t, name+"-you", password)
	room, err := w.you.CreateRoom(t.Context(), person.RoomOptions{Alias: name, Invite: []id.UserID{w.bot, w.gates}})
	w.must(err)
	w.room = room
	for _, user := range []id.UserID{w.bot, w.gates} {
		w.must(os.WriteFile(filepath.Join(w.dir, user.Localpart()+".json"), fmt.Appendf(nil, `{"userID": %q, "password": %q}`, user, password), 0o600))
	}
	t.Cleanup(func() {
		if w.stop != nil {
			w.stop()
		}
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) options() matrix.Options {
	return matrix.Options{
		Homeserver: w.base, UserID: w.bot, Sender: store.ByAgent("ops"), Agent: "ops", Wanted: w.room.String(), Approvals: w.gates,
		Store: w.store, Credentials: matrix.Credentials{Dir: w.dir}, Desk: w.desk, Log: slog.New(slog.NewTextHandler(testLog{w.t}, nil)),
		Report: func(s matrix.State) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.states = append(w.states, s)
		},
		Timing: matrix.Timing{
			Backoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, Unreachable: 100 * time.Millisecond, Retry: 100 * time.Millisecond,
			Timeline: 10, Poll: 2 * time.Second,
		},
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// start the account, with changes to its options.
func (w *world) start(change ...func(*matrix.Options)) {
	w.t.Helper()
	var err error
	w.store, err = store.Open(w.t.Context(), w.dir)
	w.must(err)
	o := w.options()
	for _, c := range change {
		c(&o)
	}
	a, err := matrix.New(o)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	w.stop = func() {
		w.stop = nil
		cancel()
		<-done
		w.must(w.store.Close())
	}
}

func (w *world) wait(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			w.t.Fatalf("in vain: %s; states %+v", what, w.reported())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (w *world) reported() []matrix.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]matrix.State(nil), w.states...)
}

func (w *world) connected() {
	w.t.Helper()
	w.wait("connected", func() bool {
		s := w.reported()
		return len(s) > 0 && s[len(s)-1].Connected
	})
}

func (w *world) say(text string) id.EventID {
	w.t.Helper()
	e, err := w.you.Say(w.t.Context(), w.room, text, person.Where{})
	w.must(err)
	return e
}

// heard are the texts in the inbox, in order.
func (w *world) heard() []string {
	w.t.Helper()
	waiting, err := w.store.Waiting(w.t.Context())
	w.must(err)
	texts := []string{}
	for _, m := range waiting {
		texts = append(texts, m.Route.Text)
	}
	return texts
}

func (w *world) hears(want ...string) {
	w.t.Helper()
	w.wait(fmt.Sprintf("%d messages in the inbox", len(want)), func() bool { return len(w.heard()) >= len(want) })
	if diff := cmp.Diff(want, w.heard()); diff != "" {
		w.t.Fatalf("-want +heard:\n%s", diff)
	}
}

// tell puts messages into the outbox.
func (w *world) tell(texts ...string) {
	w.t.Helper()
	w.must(w.store.Update(w.t.Context(), func(tx *store.Tx) error {
		for _, text := range texts {
			if err := tx.Send(store.Outbound{ID: "t/" + text, Sender: store.ByAgent("ops"), Agent: "ops", Room: w.room.String(), Content: render.Text(text).JSON()}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (w *world) told() {
	w.t.Helper()
	w.wait("an empty outbox", func() bool {
		n, err := w.store.Unanswered(w.t.Context(), store.ByAgent("ops"))
		w.must(err)
		return n == 0
	})
}

// said is what the account said in the room, as the homeserver has it.
func (w *world) said() []string {
	w.t.Helper()
	c, err := w.you.Conversation(w.t.Context(), w.room)
	w.must(err)
	texts := []string{}
	for _, m := range c.Messages {
		if m.Sender == w.bot {
			texts = append(texts, m.Body)
		}
	}
	return texts
}

func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("message %d", i)
	}
	return texts
}

// Case 24: more messages than a sync brings while the gateway was away.
func TestManyMessagesWhileAway(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "away")
	w.say("before anybody was there")
	w.start()
	w.connected()
	w.say("first")
	w.hears("first")
	w.stop()
	want := append([]string{"first"}, numbered(65)...)
	for _, text := range want[1:] {
		w.say(text)
	}
	w.start()
	w.hears(want...)
	w.stop()
	w.start() // and once more: nothing comes twice
	w.say("last")
	w.hears(append(want, "last")...)
}

// Case 23: what was read and how far are stored together. A failure between leaves neither.
func TestFailureWhileTakingIn(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "fail")
	w.start()
	w.connected()
	w.desk.mu.Lock()
	w.desk.fail = 3
	w.desk.mu.Unlock()
	w.say("one")
	w.say("two")
	w.hears("one", "two")
}

// Case 25: history is not work, neither for a fresh account nor after it was put out and let in again.
func TestHistoryIsNotWork(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "history")
	w.say("approve rev-1, said long ago")
	w.start()
	w.connected()
	w.say("one")
	w.hears("one")

	_, err := w.you.Client().KickUser(t.Context(), w.room, &mautrix.ReqKickUser{UserID: w.bot})
	w.must(err)
	w.wait("the loss of the room reported", func() bool {
		s := w.reported()
		return s[len(s)-1].Reason == matrix.RoomNotFound
	})
	for _, text := range numbered(15) {
		w.say(text)
	}
	w.must(w.you.Invite(t.Context(), w.room, w.bot))
	w.connected()
	w.say("two")
	w.hears("one", "two")
}

// What others do besides speaking is no message: edits come marked, reactions, redactions and state are none.
func TestWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "kinds")
	w.start()
	w.connected()
	e := w.say("one")
	_, err := w.you.React(t.Context(), w.room, e, "👍")
	w.must(err)
	_, err = w.you.Client().SendStateEvent(t.Context(), w.room, event.StateTopic, "", &event.TopicEventContent{Topic: "approve rev-1"})
	w.must(err)
	gone := w.say("two")
	w.hears("one", "two")
	_, err = w.you.Client().RedactEvent(t.Context(), w.room, gone)
	w.must(err)
	for _, odd := range []any{
		map[string]any{"msgtype": 7, "body": []string{"x"}}, map[string]any{"body": "no type"}, map[string]any{},
		map[string]any{"msgtype": "m.text", "body": "x", "m.relates_to": "y"},
	} {
		if _, err := w.you.Client().SendMessageEvent(t.Context(), w.room, event.EventMessage, odd); err != nil && !strings.Contains(err.Error(), "HTTP 400") {
			t.Fatal(err) // a homeserver may refuse it itself
		}
	}
	w.say("three")
	w.hears("one", "two", "three")
}

// One login for life: the token is used again, and when it was ended from outside, the device is.
func TestOneLogin(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "login")
	session := func() store.Session {
		t.Helper()
		w.start()
		w.connected()
		s, ok, err := w.store.Session(t.Context(), w.bot.String())
		if err != nil || !ok {
			t.Fatal(err, ok)
		}
		return s
	}
	first := session()
	w.stop()
	if diff := cmp.Diff(first, session()); diff != "" {
		t.Errorf("another session after a restart:\n%s", diff)
	}
	other, err := mautrix.NewClient(w.hs.BaseURL, w.bot, first.Token)
	w.must(err)
	_, err = other.Logout(t.Context())
	w.must(err)
	w.wait("a new session", func() bool {
		s, _, err := w.store.Session(t.Context(), w.bot.String())
		w.must(err)
		return s.Token != first.Token
	})
	again, _, err := w.store.Session(t.Context(), w.bot.String())
	w.must(err)
	if again.DeviceID != first.DeviceID {
		t.Errorf("device %s, want %s", again.DeviceID, first.DeviceID)
	}
	w.say("still there?")
	w.hears("still there?")
}

func TestReportsWhyNotConnected(t *testing.T) {
	t.Parallel()
	hs := homeserver.Shared(t)
	for name, tc := range map[string]struct {
		change func(*world, *matrix.Options)
		reason string
		says   string
	}{
		"no-credentials": {func(_ *world, o *matrix.Options) { o.Credentials = matrix.Credentials{} }, matrix.LoginFailed, "to the gateway's Secret (nisse-matrix in nisse-system"},
		"wrong-password": {func(w *world, _ *matrix.Options) {
			w.must(os.WriteFile(filepath.Join(w.dir, w.bot.Localpart()+".json"), fmt.Appendf(nil, `{"userID": %q, "password": "wrong"}`, w.bot), 0o600))
		}, matrix.LoginFailed, "M_FORBIDDEN"},
		"bad-file": {func(w *world, _ *matrix.Options) {
			w.must(os.WriteFile(filepath.Join(w.dir, "aa.json"), []byte(`password`), 0o600))
		}, matrix.LoginFailed, "aa.json"},
		"no-such-alias": {func(w *world, o *matrix.Options) { o.Wanted = "#nowhere:" + w.hs.ServerName }, matrix.RoomNotFound, "Create the room"},
		"no-such-room":  {func(w *world, o *matrix.Options) { o.Wanted = "!nowhere:" + w.hs.ServerName }, matrix.RoomNotFound, "Invite"},
		"not-there":     {func(_ *world, o *matrix.Options) { o.Homeserver = "http://127.0.0.1:1" }, matrix.HomeserverUnreachable, "refused"},
		"encrypted-room": {func(w *world, _ *matrix.Options) {
			_, err := w.you.Client().SendStateEvent(t.Context(), w.room, event.StateEncryption, "", &event.EncryptionEventContent{Algorithm: id.AlgorithmMegolmV1})
			w.must(err)
		}, matrix.RoomEncrypted, "without encryption"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t, hs, "why-"+name)
			w.start(func(o *matrix.Options) { tc.change(w, o) })
			w.wait("a reason", func() bool { return len(w.reported()) > 0 })
			s := w.reported()[0]
			if s.Connected || s.Reason != tc.reason || !strings.Contains(s.Message, tc.says) {
				t.Errorf("reported %+v, want %s: …%s…", s, tc.reason, tc.says)
			}
		})
	}
}

// An account that is missing is made with the registration secret, and its room is joined when somebody invites it.
func TestRegistersAndJoinsWhenInvited(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "made")
	bot := id.NewUserID("made-later.a=b", w.hs.ServerName)
	file := w.registration()
	w.start(func(o *matrix.Options) {
		o.UserID, o.Wanted = bot, "#made:"+w.hs.ServerName
		o.Credentials = matrix.Credentials{RegistrationSecretFile: file, ServerName: w.hs.ServerName}
	})
	w.wait("not in the room", func() bool { s := w.reported(); return len(s) > 0 && s[0].Reason == matrix.RoomNotFound })
	w.must(w.you.Invite(t.Context(), w.room, bot))
	w.connected()
	w.say("welcome")
	w.hears("welcome")
}

// registration writes the homeserver's registration secret into a file.
func (w *world) registration() string {
	w.t.Helper()
	env, err := os.ReadFile(filepath.Join(w.hs.Dir, "env"))
	w.must(err)
	_, secret, _ := strings.Cut(string(env), "HOMESERVER_REGISTRATION_SECRET=")
	secret, _, _ = strings.Cut(secret, "\n")
	file := filepath.Join(w.dir, "registration")
	w.must(os.WriteFile(file, []byte(secret+"\n"), 0o600))
	return file
}

// The homeserver is made anew under the same name: its accounts are gone, and how far they had read means nothing there.
func TestHomeserverMadeAnew(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Start(t, homeserver.Options{}), "anew")
	bot := id.NewUserID("anew-made", w.hs.ServerName)
	mine := func(o *matrix.Options) {
		o.UserID, o.Wanted = bot, "#anew:"+w.hs.ServerName
		o.Credentials = matrix.Credentials{RegistrationSecretFile: w.registration(), ServerName: w.hs.ServerName}
	}
	w.must(w.you.Invite(t.Context(), w.room, bot))
	w.start(mine)
	w.connected()
	for _, text := range numbered(20) {
		w.say(text)
	}
	w.hears(numbered(20)...)
	w.stop()

	next := build(t, homeserver.Start(t, homeserver.Options{}), "anew")
	w.hs, w.base, w.you, w.room, w.states = next.hs, next.base, next.you, next.room, nil
	w.start(mine)
	w.wait("not in the room", func() bool { s := w.reported(); return len(s) > 0 && s[0].Reason == matrix.RoomNotFound })
	w.must(w.you.Invite(t.Context(), w.room, bot))
	w.connected()
	w.say("new")
	w.hears(append(numbered(20), "new")...)
}

// Nothing is said before the first sync, everything in order, once.
func TestSendsInOrder(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "order")
	w.start()
	w.connected()
	want := numbered(20)
	w.tell(want...)
	w.told()
	if diff := cmp.Diff(want, w.said()); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}
}

// Case 27: a homeserver that limits rates gets its messages later, each once.
func TestRateLimited(t *testing.T) { // not beside others, whose answers would be counted too
	hs := homeserver.Start(t, homeserver.Options{TightRateLimits: true})
	w := build(t, hs, "limit")
	f := &fault{}
	w.through(f)
	w.start()
	w.connected()
	want := numbered(8)
	before := testutil.ToFloat64(metrics.RateLimited)
	if hs.Implementation == "dendrite" { // it never limits messages
		f.limit.Store(3)
	}
	w.tell(want...)
	w.told()
	if diff := cmp.Diff(want, w.said()); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}
	if testutil.ToFloat64(metrics.RateLimited) == before {
		t.Error("the homeserver never answered 429, so this showed nothing")
	}
}

// The homeserver took a message, the answer was lost, and the homeserver was restarted and has forgotten the transaction ID: the
// message is found, not sent again.
func TestLostAnswerAndForgottenTransactions(t *testing.T) {
	t.Parallel()
	hs := homeserver.Start(t, homeserver.Options{})
	w := build(t, hs, "lost")
	f := &fault{}
	w.through(f)
	w.start()
	w.connected()
	w.tell("zero")
	w.told()

	f.lose.Store(1)
	w.tell("one")
	w.wait("a lost answer", func() bool { return f.lost.Load() == 1 })
	w.stop()
	forget(t, hs)
	w.start()
	w.tell("two")
	w.told()
	if diff := cmp.Diff([]string{"zero", "one", "two"}, w.said()); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}

	// The same while the account keeps running and no sync brings its message back: it looks into history.
	f.deaf.Store(true)
	f.lose.Store(1 << 40)
	w.tell("three", "four")
	w.wait("more lost answers", func() bool { return f.lost.Load() >= 3 })
	f.lose.Store(1 << 40)
	forget(t, hs)
	f.lose.Store(0)
	w.told()
	if diff := cmp.Diff([]string{"zero", "one", "two", "three", "four"}, w.said()); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}
}

// The homeserver is away for a while: people are told, nothing is lost, and it goes on by itself.
func TestHomeserverAway(t *testing.T) {
	t.Parallel()
	hs := homeserver.Start(t, homeserver.Options{})
	w := build(t, hs, "gone")
	w.start()
	w.connected()
	hs.Kill(t)
	w.tell("while you were away")
	w.wait("told that it is away", func() bool {
		s := w.reported()
		return s[len(s)-1].Reason == matrix.HomeserverUnreachable
	})
	hs.Restart(t)
	w.connected()
	w.told()
	w.say("back")
	w.hears("back")
	if diff := cmp.Diff([]string{"while you were away"}, w.said()); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}
}
