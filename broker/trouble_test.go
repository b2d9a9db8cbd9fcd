package broker

import (
	"net/http"
	"strings"
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

// What the pod says keeps it from going on stands in the item's status, cleaned and capped, until the pod takes it back. What is no such
// report, or of another item, changes nothing.
func TestTrouble(t *testing.T) {
	r := newRig(t, options{})
	post := func(body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/trouble", strings.NewReader(body))
		must(t, err)
		res, err := (&http.Client{Transport: bearer(r.token)}).Do(req)
		must(t, err)
		must(t, res.Body.Close())
		return res.StatusCode
	}
	trouble := func() *v1alpha1.TroubleReport {
		t.Helper()
		if rt := r.itemNow().Status.Runtime; rt != nil {
			return rt.Trouble
		}
		return nil
	}
	item := r.itemNow().Name
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"no JSON":        {`x`, http.StatusBadRequest},
		"no item":        {`{"reason":"ModelUnusable"}`, http.StatusBadRequest},
		"another reason": {`{"workItem":"` + item + `","reason":"Bored"}`, http.StatusBadRequest},
		"another item":   {`{"workItem":"wi-other","reason":"ModelUnusable"}`, http.StatusConflict},
		"nothing to end": {`{"workItem":"` + item + `"}`, http.StatusNoContent},
	} {
		t.Run(name, func(t *testing.T) {
			if got := post(tc.body); got != tc.want || trouble() != nil {
				t.Errorf("answered %d, filed %+v", got, trouble())
			}
		})
	}
	if got := post(`{"workItem":"` + item + `","reason":"ModelUnusable","message":"404\n\u202e` + strings.Repeat("x", 2000) + `"}`); got != http.StatusNoContent {
		t.Fatalf("answered %d", got)
	}
	first := trouble()
	if first == nil || first.Reason != v1alpha1.TroubleModelUnusable || !strings.HasPrefix(first.Message, `404 \u202ex`) || len(first.Message) > 1024 || first.At.IsZero() {
		t.Fatalf("filed %+v", first)
	}
	version := r.itemNow().ResourceVersion
	if got := post(`{"workItem":"` + item + `","reason":"ModelUnusable","message":"404\n\u202e` + strings.Repeat("x", 2000) + `"}`); got != http.StatusNoContent || r.itemNow().ResourceVersion != version {
		t.Errorf("the same again: answered %d, and the item was written", got)
	}
	post(`{"workItem":"` + item + `","reason":"ModelUnusable","message":"401"}`)
	if next := trouble(); next == nil || next.Message != "401" || !next.At.Equal(&first.At) {
		t.Errorf("another message: %+v", next)
	}
	if got := post(`{"workItem":"` + item + `"}`); got != http.StatusNoContent || trouble() != nil {
		t.Errorf("taken back: answered %d, filed %+v", got, trouble())
	}
	for range 20 {
		if post(`{"workItem":"`+item+`"}`) == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("a pod may report as often as it likes: reason " + doors.TroubleModel)
}
