package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program serves what it was given, from the moment it prints its address until it is told to stop.
func TestServesUntilStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(file, []byte(`{vars: {who: nobody}, rules: [{name: greet, then: {text: "hello ${vars.who}"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-scenario", file, "-set", "who=you", "-api-key", "sk-1"}, in)
		ended <- err
		in.CloseWithError(err)
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, lines.Text()+"/chat/completions",
		strings.NewReader(`{"model":"scripted","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk-1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(answer), "hello you") {
		t.Errorf("answer %s", answer)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"no such file", []string{"-scenario", "/nowhere.yaml"}, "read the scenario"},
		{"no value", []string{"-set", "device"}, "has no ="},
		{"no address", []string{"-listen", "nowhere:x"}, "choose another with -listen"},
		{"unknown flag", []string{"-senario", "x"}, "-senario"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := run(t.Context(), tc.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v does not say %q", err, tc.says)
			}
		})
	}
}
