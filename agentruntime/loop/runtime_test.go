package loop_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/loop"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/test/scriptedmodel"
)

// runtime is one process's worth: a loop over a log, which can be stopped and started again over the same directory.
type runtime struct {
	*rig
	dir   string
	cfg   doors.RuntimeConfig
	token string
	model model.Model // instead of the one of cfg
	stop  func() error
}

func scenario(t testing.TB, yaml string) *scriptedmodel.Running {
	t.Helper()
	s, err := scriptedmodel.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return scriptedmodel.Start(t, s)
}

func demo(t testing.TB) *scriptedmodel.Running {
	t.Helper()
	s, err := scriptedmodel.Demo()
	if err != nil {
		t.Fatal(err)
	}
	return scriptedmodel.Start(t, s)
}

func start(t testing.TB, m *scriptedmodel.Running) *runtime {
	t.Helper()
	r := prepare(t, m.Key)
	r.cfg.Model = doors.Model{URL: m.BaseURL, Model: "scripted", TimeoutSeconds: 30}
	r.start()
	return r
}

// startWith a model instead of the endpoint of one.
func startWith(t testing.TB, m model.Model) *runtime {
	t.Helper()
	r := prepare(t, "")
	r.model = m
	r.start()
	return r
}

func prepare(t testing.TB, key string) *runtime {
	t.Helper()
	r := &runtime{rig: newRig(t), dir: t.TempDir(), token: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(r.token, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	r.cfg = doors.RuntimeConfig{Agent: "ops", AgentUID: "uid-ops", BrokerURL: r.url(), GatewayURL: r.url(), ToolCallsPerTurn: 12}
	t.Cleanup(func() {
		if r.stop != nil {
			_ = r.stop()
		}
	})
	return r
}

func (r *runtime) start() {
	r.t.Helper()
	log, err := eventlog.Open(context.Background(), r.dir, "ops", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	door := doorclient.Door{URL: r.url(), TokenPath: r.token}
	tools := doorclient.NewTools(door, quiet)
	var m model.Model = model.NewOpenAI(r.cfg.Model, r.token)
	if r.model != nil {
		m = r.model
	}
	l := loop.New(loop.Parts{
		Config: r.cfg, Log: log, Model: m, Tools: tools, Work: doorclient.NewWork(door, quiet),
		Mailbox: doorclient.NewMailbox(door), Troubles: doorclient.NewTroubles(door), Logger: quiet, Timing: quick, Meter: core.NewMeter(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	r.stop = func() error {
		cancel()
		err := <-ended
		tools.Close()
		r.stop = nil
		if cerr := log.Close(); err == nil {
			err = cerr
		}
		return err
	}
}

// events of the log, which must not be in use.
func (r *runtime) events() (out []event.Event) {
	r.t.Helper()
	if r.stop != nil {
		if err := r.stop(); err != nil {
			r.t.Fatal(err)
		}
	}
	l, err := eventlog.Open(context.Background(), r.dir, "ops", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	if err := l.Each(context.Background(), func(e event.Event) error { out = append(out, e); return nil }); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *runtime) tools() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.calls {
		out = append(out, m.Tool)
	}
	return out
}

func (r *runtime) ended(item string) func() bool {
	return func() bool {
		return slices.ContainsFunc(r.snap.Ended, func(s doors.Summary) bool { return s.Name == item })
	}
}

const report = "Write the disk usage of the machine into /srv/nisse/report.txt"
