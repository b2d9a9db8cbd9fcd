package doorclient

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// plain requests and answers of a door, beside streams and MCP.
type plain struct {
	door Door
	http *http.Client
}

func (p plain) post(ctx context.Context, path string, v any) (*http.Response, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, shortRequest)
	res, err := p.do(ctx, http.MethodPost, path, body)
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = closing{res.Body, cancel}
	return res, nil
}

func (p plain) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(p.door.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return p.http.Do(req)
}
