package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/canonical"
)

// envelope tells whether a body has the form of an envelope at all.
func envelope(body []byte) error {
	var e dsse.Envelope
	if err := canonical.Strict(body, &e); err != nil {
		return fmt.Errorf("not an envelope: %w", err)
	}
	return nil
}

// Handler of the wire.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/call", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxRequest))
		if err != nil {
			unreadable(w, err)
			return
		}
		reply(w)(s.Call(r.Context(), body))
	})
	mux.HandleFunc("POST /v1/resolve", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxRequest))
		if err != nil {
			unreadable(w, err)
			return
		}
		reply(w)(s.Resolve(body))
	})
	for path, take := range map[string]func(ctx context.Context, header, path string, body []byte) ([]byte, error){"/v1/manifests": s.Bring, "/v1/revoke": s.Revoke, "/v1/anchor": s.Anchor} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxRequest))
			if err != nil {
				unreadable(w, err)
				return
			}
			reply(w)(take(r.Context(), r.Header.Get(wire.QueryHeader), r.URL.RequestURI(), body))
		})
	}
	mux.HandleFunc("GET /v1/deeds/{id}", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(s.Deed(r.Context(), r.Header.Get(wire.QueryHeader), r.URL.RequestURI(), r.PathValue("id")))
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(s.Status(r.Context(), r.Header.Get(wire.QueryHeader), r.URL.RequestURI()))
	})
	mux.HandleFunc("GET /v1/audit", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(s.Audit(r.Context(), r.Header.Get(wire.QueryHeader), r.URL.RequestURI()))
	})
	mux.HandleFunc("GET /v1/checkpoint", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(s.Checkpoint(r.Context(), r.Header.Get(wire.QueryHeader), r.URL.RequestURI()))
	})
	return mux
}

func reply(w http.ResponseWriter) func([]byte, error) {
	return func(envelope []byte, err error) {
		if err != nil {
			unreadable(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(envelope) // who asked is gone; the answer is in the table
	}
}

func unreadable(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		status = http.StatusRequestEntityTooLarge
	}
	w.Header().Set("Connection", "close") // whoever sends such things is not to sit on it
	http.Error(w, err.Error(), status)
}
