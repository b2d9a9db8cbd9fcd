package capability

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/fs"
	"nisse.io/nisse/internal/manifest"
)

// What may have had its effect is told as Unknown and not as Failed; a look that gave nothing has failed.
func TestUnproven(t *testing.T) {
	lost := fmt.Errorf("%w: files as ada was killed after 30s", command.ErrUnproven)
	for _, c := range []struct {
		name string
		got  Outcome
		want wire.State
	}{
		{"any capability", failed(lost), wire.Unknown},
		{"a write as another user", untouched(manifest.FSWrite, lost), wire.Unknown},
		{"a read as another user", untouched(manifest.FSRead, lost), wire.Failed},
		{"a write that did not begin", untouched(manifest.FSWrite, fmt.Errorf("fork: no memory")), wire.Failed},
		{"a write that may not last", touched{Error: fs.ErrUnproven.Error(), Unproven: true}.outcome(manifest.Verdict{}), wire.Unknown},
	} {
		if c.got.State != c.want || c.got.Message == "" {
			t.Errorf("%s: got %+v, want %s", c.name, c.got, c.want)
		}
	}
}

// A command in a container whose Engine goes away after its start: what it had said stays, and nobody is told that it failed.
func TestContainerExecThatNobodyHeard(t *testing.T) {
	const id = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/containers/web/json":
			_, _ = fmt.Fprintf(w, `{"Id":%q,"Name":"/web","State":{"Running":true}}`, id)
		case r.URL.Path == "/containers/"+id+"/exec":
			_, _ = fmt.Fprintf(w, `{"Id":%q}`, id)
		case strings.HasSuffix(r.URL.Path, "/start"):
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "\x01\x00\x00\x00\x00\x00\x00\x05begun")
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	r := machine(t, fmt.Sprintf(`
environment: {DOCKER_HOST: "unix://%s"}
containers:
- {operations: [docker.container.exec], names: ["*"], approval: Required, commands: [{argv: [/bin/true], approval: Required}]}
`, socket))
	o := r.does(t, manifest.DockerExec, manifest.ContainerExecArgs{Container: "web", Argv: []string{"/bin/true"}})
	if o.State != wire.Unknown || o.Result == nil {
		t.Fatalf("got %+v", o)
	}
	if got, ok := o.Result(1000).(wire.ContainerExecResult); !ok || got.Stdout != "begun" {
		t.Errorf("it said %+v", got)
	}
}
