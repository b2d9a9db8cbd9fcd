package matrix_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// fault stands between account and homeserver, and breaks the answers to sends.
type fault struct {
	proxy *httputil.ReverseProxy
	lose  atomic.Int64 // answers to sends that are lost after the homeserver has done its part
	lost  atomic.Int64
	deaf  atomic.Bool  // syncs fail
	limit atomic.Int64 // sends that are answered 429
	// Requests whose path ends so are sent to another address, if there is one.
	away, elsewhere string
	leads           atomic.Bool
	blind           atomic.Value // of the room with this ID, a string, the history cannot be read
	// Requests whose path holds about are answered hollow, with nothing else, so many times; what they ask for is not done.
	about, hollow string
	hollows       atomic.Int64
	// Sends to the room with this ID, a string, are answered 500, or 403 by what is no homeserver.
	sick, barred atomic.Value
	// Sends of these words, a string, are answered 403 with this body.
	words   atomic.Value
	verdict string
}

// through lets the account reach its homeserver by way of f.
func (w *world) through(f *fault) {
	w.t.Helper()
	target, err := url.Parse(w.hs.BaseURL)
	w.must(err)
	f.proxy = httputil.NewSingleHostReverseProxy(target)
	f.proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.proxy.FlushInterval = -1
	srv := httptest.NewServer(f)
	w.t.Cleanup(srv.Close)
	w.base = srv.URL
}

func (f *fault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.leads.Load() && strings.HasSuffix(r.URL.Path, f.away) {
		http.Redirect(w, r, f.elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
		return
	}
	if f.about != "" && strings.Contains(r.URL.Path, f.about) && f.hollows.Add(-1) >= 0 {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(f.hollow))
		return
	}
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/send/") && f.lose.Add(-1) >= 0 {
		f.proxy.ServeHTTP(httptest.NewRecorder(), r)
		f.lost.Add(1)
		panic(http.ErrAbortHandler) // the connection breaks
	}
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/send/") && f.limit.Add(-1) >= 0 {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"errcode":"M_LIMIT_EXCEEDED","error":"Too Many Requests","retry_after_ms":20}`))
		return
	}
	if room, _ := f.sick.Load().(string); room != "" && strings.Contains(r.URL.Path, room+"/send/") {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"errcode":"M_UNKNOWN","error":"Internal server error"}`))
		return
	}
	if room, _ := f.barred.Load().(string); room != "" && strings.Contains(r.URL.Path, room+"/send/") {
		http.Error(w, "<html>Forbidden</html>", http.StatusForbidden)
		return
	}
	if words, _ := f.words.Load().(string); words != "" && strings.Contains(r.URL.Path, "/send/") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if strings.Contains(string(body), words) {
			http.Error(w, f.verdict, http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if room, _ := f.blind.Load().(string); room != "" && strings.HasSuffix(r.URL.Path, room+"/messages") {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"errcode":"M_UNKNOWN","error":"Internal server error"}`))
		return
	}
	if strings.HasSuffix(r.URL.Path, "/sync") && f.deaf.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	f.proxy.ServeHTTP(w, r)
}
