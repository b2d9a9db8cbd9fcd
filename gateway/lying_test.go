package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"
)

// lying stands before a homeserver and changes every object in its answers, events among them, as a homeserver in other hands might.
func lying(t *testing.T, base string, change func(map[string]any)) string {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Del("Accept-Encoding")
	}}
	proxy.ModifyResponse = func(res *http.Response) error {
		d := json.NewDecoder(res.Body)
		d.UseNumber()
		var body any
		if err := d.Decode(&body); err != nil {
			return err
		}
		everywhere(body, change)
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		res.Header.Set("Content-Length", strconv.Itoa(len(b)))
		return nil
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	return srv.URL
}

func everywhere(v any, change func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			everywhere(x, change)
		}
	case map[string]any:
		change(v)
		for _, x := range v {
			everywhere(x, change)
		}
	}
}
