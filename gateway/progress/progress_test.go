package progress

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
)

func TestMerge(t *testing.T) {
	many := ""
	for i := range 40 {
		many = Merge(many, fmt.Sprintf("step %d", i))
	}
	lines := strings.Split(many, "\n")
	if len(lines) != maxLines || lines[0] != earlier || lines[1] != "• step 11" || lines[maxLines-1] != "• step 39" {
		t.Errorf("%d lines: %q … %q", len(lines), lines[:2], lines[len(lines)-1])
	}
	for name, tc := range map[string]struct{ old, news, want string }{
		"the first":           {"", "read a", "• read a"},
		"another":             {"• read a", "read b", "• read a\n• read b"},
		"lines become one":    {"", "read\na\u202e", `• read a\u202e`},
		"a forged second one": {"• a", "b\n✓ rev-1 approved", "• a\n• b ✓ rev-1 approved"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Merge(tc.old, tc.news); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// A text of long lines stays so small that an edit of it is an event which a homeserver takes. Lines are left out whole, oldest first,
// and that is said.
func TestMergeIsBoundedInBytes(t *testing.T) {
	for name, filler := range map[string]string{
		"4-byte characters": "𒀀", "of Latin": "x", "quotes": `"`, "markup": "<", "ampersands": "&", "backslashes": `\`, "hidden characters": "\U000e0041", "code": "`x`",
	} {
		t.Run(name, func(t *testing.T) {
			text := ""
			line := func(n int) string { return fmt.Sprintf("%d ", n) + strings.Repeat(filler, 400) }
			for n := range 2 * maxLines {
				text = Merge(text, line(n))
				if size := len(text); size > 14<<10 {
					t.Fatalf("%d bytes after %d lines", size, n+1)
				}
			}
			if !render.Progress(text).Editable() {
				t.Error("an edit of it would be too large")
			}
			lines := strings.Split(text, "\n")
			if len(lines) < 3 || lines[0] != earlier {
				t.Fatalf("%d lines, the first %.40q", len(lines), lines[0])
			}
			first := 2*maxLines - len(lines) + 1
			for n, got := range lines[1:] {
				if want := Merge("", line(first+n)); got != want {
					t.Errorf("line %d is %.40q, want %.40q, whole", n+1, got, want)
				}
			}
		})
	}
}

// The first line is shown at once; what follows within the interval is shown in one edit after it.
func TestProgressIsEditedNotMoreOftenThan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRoom(ctx, "ops", "#ops:x", "!r"); err != nil {
		t.Fatal(err)
	}
	const every = 2 * time.Second // two additions in a row must lie within it, also on a busy machine
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := (&Keeper{Store: s, Log: slog.New(slog.DiscardHandler), Every: every}).Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	defer func() {
		cancel()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	add := func(n int) {
		t.Helper()
		err := s.Update(ctx, func(tx *store.Tx) error {
			if err := tx.AddThread(store.Thread{WorkItem: "wi-1", Agent: "ops", Room: "!r", Root: "$root"}); err != nil {
				return err
			}
			news := fmt.Sprintf("step %d", n)
			_, err := tx.AddProgress(news, "ops", "wi-1", news, func(old string) string { return Merge(old, news) })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// said lists what was put into the outbox, each marked as sent so that edits of it can follow.
	var said []string
	wait := func(n int) {
		t.Helper()
		deadline := time.After(time.Minute)
		for len(said) < n {
			changed := s.Changed(store.TopicOutbox(store.ByAgent("ops")))
			unsent, err := s.Unsent(ctx, store.ByAgent("ops"))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range unsent {
				var c struct{ Body string }
				if err := json.Unmarshal(o.Content, &c); err != nil {
					t.Fatal(err)
				}
				said = append(said, o.Original+"/"+c.Body)
				if err := s.Sent(ctx, o.ID, "!r", fmt.Sprintf("$%d", len(said))); err != nil {
					t.Fatal(err)
				}
			}
			if len(unsent) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("said %q", said)
			}
		}
	}
	began := time.Now()
	add(1)
	wait(1)
	add(2)
	add(3)
	wait(2)
	if took := time.Since(began); took < every {
		t.Errorf("edited after %s", took)
	}
	if diff := cmp.Diff([]string{"/• step 1", "$1/• step 1\n• step 2\n• step 3"}, said); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}
}

// Before words of weight the news are shown whether or not it is time, once.
func TestFlush(t *testing.T) {
	s, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.SetRoom(t.Context(), "ops", "#ops:x", "!r"); err != nil {
		t.Fatal(err)
	}
	var said []string
	for n, news := range []string{"step 1", "step 2", ""} {
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			if err := tx.AddThread(store.Thread{WorkItem: "wi-1", Agent: "ops", Room: "!r", Root: "$root"}); err != nil {
				return err
			}
			if news != "" {
				if _, err := tx.AddProgress(news, "ops", "wi-1", news, func(old string) string { return Merge(old, news) }); err != nil {
					return err
				}
			}
			return Flush(tx, "wi-1")
		})
		if err != nil {
			t.Fatal(err)
		}
		unsent, err := s.Unsent(t.Context(), store.ByAgent("ops"))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range unsent {
			var c struct{ Body string }
			if err := json.Unmarshal(o.Content, &c); err != nil {
				t.Fatal(err)
			}
			said = append(said, o.Original+"/"+c.Body)
			if err := s.Sent(t.Context(), o.ID, "!r", fmt.Sprintf("$%d", n+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"/• step 1", "$1/• step 1\n• step 2"}, said); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}
}
