package scriptedmodel

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	kept            = 256      // requests that are remembered for /debug/requests
	maxRequestBytes = 32 << 20 // more than any runtime should send
)

// Server answers requests from a scenario. It is an http.Handler.
type Server struct {
	scenario *Scenario
	key      string
	mux      *http.ServeMux

	mu       sync.Mutex
	requests []Request      // the latest, oldest first
	total    int            // all requests for completions since the start
	byRule   map[string]int // the same, by rule
	spoiled  map[string]int // how often a fault with Times struck, by request
}

// Request is what is remembered of a request for a completion.
type Request struct {
	Number int       `json:"number"`
	At     time.Time `json:"at"`
	// Rule that answered; empty when none did or the request was refused.
	Rule string `json:"rule,omitempty"`
	// Problem with the request or with following the rule.
	Problem string `json:"problem,omitempty"`
	// Key is the same for the same conversation.
	Key    string          `json:"key,omitempty"`
	Status int             `json:"status"`
	Stream bool            `json:"stream"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// New makes a server. With a key, requests must carry it as bearer token.
func New(s *Scenario, key string) *Server {
	server := &Server{scenario: s, key: key, mux: http.NewServeMux(), byRule: make(map[string]int), spoiled: make(map[string]int)}
	server.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, []byte(`{"ok":true}`)) })
	server.mux.HandleFunc("GET /v1/models", server.authenticated(server.models))
	server.mux.HandleFunc("POST /v1/chat/completions", server.authenticated(server.complete))
	server.mux.HandleFunc("GET /debug/requests", server.authenticated(server.debug))
	return server
}

// ServeHTTP serves the model's API, /healthz, and /debug/requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests are the latest requests for completions, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Total counts all requests for completions since the start.
func (s *Server) Total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *Server) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if s.key != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.key)) != 1 {
			write(w, http.StatusUnauthorized, problem("invalid_request_error", "", "the API key is missing or wrong"))
			return
		}
		next(w, r)
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	data := make([]object, len(s.scenario.Models))
	for i, name := range s.scenario.Models {
		data[i] = object{"id": name, "object": "model", "created": created, "owned_by": "nisse"}
	}
	reply(w, object{"object": "list", "data": data})
}

func (s *Server) debug(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	body := object{"total": s.total, "byRule": s.byRule, "requests": s.requests}
	raw, err := marshal(body)
	s.mu.Unlock()
	if err != nil {
		write(w, http.StatusInternalServerError, problem("server_error", "", err.Error()))
		return
	}
	write(w, http.StatusOK, raw)
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	record := Request{At: time.Now(), Status: http.StatusOK}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		return // the client is gone, or sent what nobody would read; there is nothing to answer
	}
	if json.Valid(raw) {
		record.Body = raw
	}
	parsed, choice, err := parse(raw)
	record.Stream = parsed.Stream
	if bad := (badRequest{}); errors.As(err, &bad) {
		s.refuse(w, record, http.StatusBadRequest, bad.param, bad.message)
		return
	}
	if !slices.Contains(s.scenario.Models, parsed.Model) {
		s.refuse(w, record, http.StatusNotFound, "model", fmt.Sprintf("The model %q does not exist; there are: %s", parsed.Model, strings.Join(s.scenario.Models, ", ")))
		return
	}

	a := decide(s.scenario, parsed, choice)
	if !s.strikes(a) {
		a.Fault = Fault{}
	}
	a = spoil(a)
	record.Rule, record.Problem, record.Key = a.Rule, a.Problem, a.Key
	if a.Rule == "" {
		record.Problem = a.Text
	}
	if a.Fault.Status != 0 {
		record.Status = a.Fault.Status
	}
	s.remember(record)

	if !wait(r.Context(), a.Fault.Delay.Duration) {
		return
	}
	if a.Fault.Status != 0 {
		if a.Fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(a.Fault.RetryAfter))
		}
		write(w, a.Fault.Status, problem("scripted_fault", "", fmt.Sprintf("rule %q answers %d", a.Rule, a.Fault.Status)))
		return
	}
	send(w, a, parsed)
}

// send writes an answer, whole or as a stream, and breaks the connection where the fault wants it.
func send(w http.ResponseWriter, a answer, r request) {
	form, kind := whole, "application/json"
	if r.Stream {
		form, kind = streamed, "text/event-stream"
	}
	body, err := form(a, r)
	if err != nil {
		write(w, http.StatusInternalServerError, problem("server_error", "", err.Error()))
		return
	}
	w.Header().Set("Content-Type", kind)
	if n := a.Fault.CutAfter; n > 0 && n < len(body) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		// The client learns of any error by the line after these.
		_, _ = w.Write(body[:n])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, event := range events(body, r.Stream) {
		if _, err := w.Write(event); err != nil {
			return // the client is gone
		}
		if r.Stream && http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}

// events parts a stream at the end of each event, so that a client sees it come bit by bit.
func events(body []byte, stream bool) [][]byte {
	if !stream {
		return [][]byte{body}
	}
	var all [][]byte
	for event := range strings.SplitAfterSeq(string(body), "\n\n") {
		all = append(all, []byte(event))
	}
	return all
}

// strikes says whether an answer's fault happens this time.
func (s *Server) strikes(a answer) bool {
	if a.Fault.Times == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoiled[a.Key]++
	return s.spoiled[a.Key] <= a.Fault.Times
}

func (s *Server) refuse(w http.ResponseWriter, record Request, status int, param, message string) {
	record.Status, record.Problem = status, message
	s.remember(record)
	write(w, status, problem("invalid_request_error", param, message))
}

func (s *Server) remember(record Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	s.byRule[record.Rule]++
	record.Number = s.total
	s.requests = append(s.requests, record)
	if len(s.requests) > kept {
		s.requests = slices.Delete(s.requests, 0, len(s.requests)-kept)
	}
}

// wait reports false when the client gave up first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func reply(w http.ResponseWriter, body any) {
	raw, err := marshal(body)
	if err != nil {
		write(w, http.StatusInternalServerError, problem("server_error", "", err.Error()))
		return
	}
	write(w, http.StatusOK, raw)
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
