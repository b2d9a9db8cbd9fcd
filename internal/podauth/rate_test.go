package podauth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/rates"
)

func TestAdmit(t *testing.T) {
	now := time.Unix(0, 0)
	rate := Rate{Buckets: rates.New(func() time.Time { return now }), PerSecond: 0.5, AtOnce: 1, Message: "slow down"}
	ask := func(agent string) (Identity, bool, *httptest.ResponseRecorder) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		if agent != "" {
			r = r.WithContext(With(r.Context(), Identity{Agent: agent, PodUID: "u"}))
		}
		id, ok := rate.Admit(w, r)
		return id, ok, w
	}
	refused := func(w *httptest.ResponseRecorder, status int, want doors.Problem) {
		t.Helper()
		var got doors.Problem
		if err := json.NewDecoder(w.Body).Decode(&got); err != nil || w.Code != status || got != want {
			t.Errorf("%d %+v %v, want %d %+v", w.Code, got, err, status, want)
		}
	}

	_, ok, w := ask("")
	if ok {
		t.Error("nobody was let in")
	}
	refused(w, http.StatusUnauthorized, doors.Problem{Reason: "Unauthenticated", Message: "nobody said whose pod this is"})
	if id, ok, _ := ask("ops"); !ok || id.Agent != "ops" || id.PodUID != "u" {
		t.Errorf("%+v %v", id, ok)
	}
	_, ok, w = ask("ops")
	if ok || w.Header().Get("Retry-After") != "3" {
		t.Errorf("asked again at once: %v, Retry-After %q", ok, w.Header().Get("Retry-After"))
	}
	refused(w, http.StatusTooManyRequests, doors.Problem{Reason: "RateLimited", Message: "slow down"})
	if _, ok, _ := ask("box"); !ok {
		t.Error("one agent used up another's")
	}
	now = now.Add(2 * time.Second)
	if _, ok, _ := ask("ops"); !ok {
		t.Error("still refused when it had waited")
	}
}
