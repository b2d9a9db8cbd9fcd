package gateway_test

import (
	"path/filepath"
	"strings"
	"testing"

	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/doors"
)

// A homeserver that makes a message of millions of bytes out of a short one does not make the agent deaf: it is handed on in part, the
// agent and the person are told so, and what follows is read. So is what an earlier gateway stored whole.
func TestWordsWithoutEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	many := strings.Repeat("<", 1<<20) // six bytes of JSON each
	r.base = lying(t, r.hs.BaseURL, func(o map[string]any) {
		if body, ok := o["body"].(string); ok {
			o["body"] = strings.ReplaceAll(body, "MANY", many)
		}
	})
	s, err := store.Open(t.Context(), filepath.Join(r.dir, "state"))
	r.must(err)
	for _, e := range []string{"$old1", "$old2"} {
		r.must(s.Update(t.Context(), func(tx *store.Tx) error {
			return tx.AddLetter(store.Letter{Agent: "ops", EventID: e, WorkItem: "wi-old", Person: "lucas", MayInstruct: true, Text: many})
		}))
	}
	r.must(s.Close())
	r.start()
	pod := r.pod("ops")
	asked := r.say(r.lucas, "nginx MANY", "")
	r.hear(r.ops, `^That is too long to hand on whole: I read the beginning and the end, 32 KB of it\.`, asked, "")
	again := r.say(r.lucas, "MANY again", asked)
	r.hear(r.ops, `^That is too long to hand on whole`, again, asked)
	r.say(r.lucas, "and quickly", asked)
	letters := r.letters(pod, 5)
	for i, begins := range []string{"<<<", "<<<", "nginx <<<", "<<<", "and quickly"} {
		text := letters[i].Text
		if !strings.HasPrefix(text, begins) || len(text) > 32<<10 || (i < 4) != strings.HasSuffix(text, "bytes, which is more than is handed on. The person was told.]") {
			t.Errorf("letter %d has %d bytes: %.20q … %q", i, len(text), text, text[max(0, len(text)-100):])
		}
	}
	if n := r.said("^That is too long to hand on whole"); n != 2 {
		t.Errorf("told %d times", n)
	}
	r.work(r.item(1), "Working")
	r.post(pod, doors.Outgoing{ID: "s1", WorkItem: letters[2].WorkItem, Kind: doors.Say, Text: "Looking."})
	r.hear(r.ops, `^Looking\.$`, asked, asked)
}
