package matrix_test

import (
	"strings"
	"testing"

	"nisse.io/nisse/gateway/progress"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/testrig/homeserver"
)

// However full of long lines a progress message is, and whatever they are made of, the homeserver takes it, and takes an edit of it.
func TestFullProgressIsTaken(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "progress")
	w.start()
	w.connected()
	for name, filler := range map[string]string{"4-byte characters": "𒀀", "quotes": `"`, "markup": "<", "backslashes": `\`} {
		t.Run(name, func(t *testing.T) {
			text := ""
			for range 40 {
				text = progress.Merge(text, strings.Repeat(filler, 400))
			}
			for _, o := range []store.Outbound{{ID: name}, {ID: name + "/2", Replaces: name}} {
				o.Sender, o.Agent, o.Room, o.Content = store.ByAgent("ops"), "ops", w.room.String(), render.Progress(text).JSON()
				w.must(w.store.Update(t.Context(), func(tx *store.Tx) error { return tx.Send(o) }))
				w.told()
			}
			c, err := w.you.Conversation(t.Context(), w.room)
			w.must(err)
			last := c.Messages[len(c.Messages)-1]
			if last.Body != text || last.Edits != 1 {
				t.Errorf("the room shows %d bytes, edited %d times, instead of %d and one edit", len(last.Body), last.Edits, len(text))
			}
		})
	}
}
