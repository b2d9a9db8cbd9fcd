package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRelayForwardsToTheEndpointAlone(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Host+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
	}))
	t.Cleanup(endpoint.Close)
	handler, err := newRelay(endpoint.URL + "/base/v1")
	if err != nil {
		t.Fatal(err)
	}
	relay := httptest.NewServer(handler)
	t.Cleanup(relay.Close)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, relay.URL+"/chat/completions", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(endpoint.URL, "http://") + " /base/v1/chat/completions Bearer k hello"
	if string(got) != want {
		t.Errorf("the endpoint saw %q, want %q", got, want)
	}
}

func TestRelaySaysThatTheEndpointIsAway(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	handler, err := newRelay(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", nil))
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), gone.URL) {
		t.Errorf("%d %q does not name the endpoint", w.Code, w.Body)
	}
}

func TestRelayRefusesOtherThanABaseURL(t *testing.T) {
	for _, to := range []string{"", "localhost:11434", "ftp://example.org/v1", "http:///v1", "http://example.org/v1?x=y", "http://user:word@example.org/v1"} {
		if _, err := newRelay(to); err == nil {
			t.Errorf("%q was accepted", to)
		}
	}
}
