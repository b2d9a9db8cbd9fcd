package broker

import (
	"context"
	"net/http"
	"os"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"nisse.io/nisse/api/v1alpha1"
)

// While a program runs, who gave a token for it hears its newest line as untrusted text is shown.
func TestWhatAProgramWritesIsToldWhileItRuns(t *testing.T) {
	r := newRig(t, options{})
	script := r.root + "/tell"
	must(t, os.WriteFile(script, []byte("#!/bin/sh\nprintf 'one\\nt\\033wo\\n'\nuntil test -e "+r.root+"/go; do sleep 0.01; done\n"), 0o755))
	r.sign(func(s *v1alpha1.DeviceManifestSpec) { s.Commands[0].Argv = []string{script} })
	lines := make(chan string, 9)
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) {
			if n.Params.ProgressToken == "mine" {
				lines <- n.Params.Message
			}
		}})
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: r.url + "/mcp", HTTPClient: &http.Client{Transport: bearer(r.token)}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	p := callParams("c1", "exec", `{"device":"web1","argv":["`+script+`"]}`)
	p.SetProgressToken("mine")
	ended := make(chan *sdk.CallToolResult, 1)
	go func() {
		res, err := s.CallTool(t.Context(), p)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	select {
	case line := <-lines:
		if line != `t\u001bwo` {
			t.Errorf("told %q", line)
		}
	case res := <-ended:
		t.Fatalf("it ended before anything was told: %+v", res)
	}
	must(t, os.WriteFile(r.root+"/go", nil, 0o600))
	if res := <-ended; res == nil || res.IsError {
		t.Errorf("it ended as %+v", res)
	}
	select {
	case line := <-lines:
		t.Errorf("told again: %q", line)
	default:
	}
}
