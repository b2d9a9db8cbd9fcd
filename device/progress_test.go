package device_test

import (
	"os"
	"strings"
	"testing"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/testrig"
)

// What a program has written so far is told to who asks for it while it runs, and to nobody else; nothing of it is kept.
func TestProgress(t *testing.T) {
	w := newWorld(t)
	r := w.one("gate", w.exec("tell", w.files+"/go"))
	body, err := wire.SignRequest(w.request, r)
	must(t, err)
	ended := make(chan wire.Answer, 1)
	go func() { a, _ := w.read(body, r.Deed); ended <- a }()
	asking := "/v1/deeds/" + r.Deed + wire.WithProgress
	testrig.Until(t, "both streams to be told", func() bool {
		got := w.seenBy(asking, r.Deed).Progress // each stream as it comes
		return strings.Contains(got, "\uFFFDfetched 10 %\rfetched 40 %\n") && strings.Contains(got, "slowly\n")
	})
	if a := w.seen(r.Deed); a.State != wire.Running || a.Progress != "" {
		t.Errorf("who did not ask is told %+v", a)
	}
	must(t, os.WriteFile(w.files+"/go", nil, 0o600))
	a := <-ended
	w.want(a, wire.Succeeded, "")
	if again := w.seenBy(asking, r.Deed); a.Progress != "" || again != a {
		t.Errorf("it ended as %+v, and is told as %+v", a, again)
	}
}
