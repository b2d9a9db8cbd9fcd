package loop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/doors"
)

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentruntime-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agentruntime")
	cmd := exec.Command("go", "build", "-tags", "crashrig", "-o", path, "nisse.io/nisse/cmd/agentruntime")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	built = path
	return path, nil
})

var built string // where the binary is, once there is one

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// process runs the real binary, and again when a crash point has killed it. It returns how often it was killed.
type process struct {
	*runtime
	crashAt string
	killed  int
	dead    chan struct{}
	logs    bytes.Buffer
	cmd     *exec.Cmd
	wg      sync.WaitGroup
	quit    chan struct{}
}

func launch(t testing.TB, crashAt string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	m := demo(t)
	p := &process{runtime: &runtime{rig: newRig(t), dir: t.TempDir(), token: filepath.Join(t.TempDir(), "token")}, crashAt: crashAt, quit: make(chan struct{}), dead: make(chan struct{})}
	if err := os.WriteFile(p.token, []byte(m.Key), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := doors.RuntimeConfig{Agent: "ops", AgentUID: "uid-ops", BrokerURL: p.url(), GatewayURL: p.url(), ToolCallsPerTurn: 12,
		Model: doors.Model{URL: m.BaseURL, Model: "scripted", TimeoutSeconds: 30}}
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	once := filepath.Join(t.TempDir(), "once")
	var mu sync.Mutex
	start := func() *exec.Cmd {
		mu.Lock()
		defer mu.Unlock()
		cmd := exec.Command(path, "--config="+config, "--state="+p.dir, "--broker-token="+p.token, "--gateway-token="+p.token, "--model-token="+p.token, "--metrics-bind-address=127.0.0.1:0")
		cmd.Env = append(os.Environ(), "NISSE_CRASH_AT="+crashAt, "NISSE_CRASH_ONCE="+once)
		cmd.Stderr = &p.logs
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
		p.cmd = cmd
		return cmd
	}
	cmd := start()
	p.wg.Go(func() {
		for {
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				return
			}
			if p.killed++; p.killed == 1 {
				close(p.dead)
			}
			select {
			case <-p.quit:
				return
			default:
				cmd = start()
			}
		}
	})
	p.stop = func() error {
		p.stop = nil
		close(p.quit)
		mu.Lock()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		mu.Unlock()
		p.wg.Wait()
		return nil
	}
	t.Cleanup(func() {
		if p.stop != nil {
			_ = p.stop()
		}
		if t.Failed() {
			t.Log(p.logs.String())
		}
	})
	return p
}

// Kill −9 at each boundary and at each time it is reached: the story ends the same, nothing is said twice, and no call has a second ID.
func TestKilledAnywhereTheStoryEndsTheSame(t *testing.T) {
	points := []string{""}
	for _, at := range []string{"intent", "outcome"} {
		for n := 1; n <= 9; n++ { // four requests to the model, five calls of tools
			points = append(points, fmt.Sprintf("runtime.%s.before:%d", at, n), fmt.Sprintf("runtime.%s.after:%d", at, n))
		}
	}
	points = append(points, "runtime.inbox.before:1", "runtime.inbox.after:1")
	for _, point := range points {
		t.Run("at "+point, func(t *testing.T) {
			t.Parallel()
			p := launch(t, point)
			p.open("wi-1", report)
			p.until("a plan waits", func() bool { return p.snap.Active != nil && p.snap.Active.Plan != nil })
			p.decide("Approved", "")
			p.until("the item ends", p.ended("wi-1"))
			p.until("the messages are acknowledged", func() bool { return p.acked == 1 })
			if point != "" {
				select {
				case <-p.dead: // the last outcome is written after the item has ended
				case <-time.After(40 * time.Second):
					t.Fatal("the crash point was never reached")
				}
			}
			p.check(t, point)
		})
	}
}

func (p *process) check(t *testing.T, point string) {
	t.Helper()
	events := p.events()
	if want := 1; point != "" && p.killed != want {
		t.Errorf("killed %d times, want %d", p.killed, want)
	}
	var tools []string
	for _, m := range p.calls {
		tools = append(tools, m.Tool)
	}
	if got := strings.Join(tools, " "); got != "fs_list exec submit_plan fs_write finish" {
		t.Errorf("calls by their IDs: %s", got)
	}
	seen := map[string]int{}
	for _, o := range p.out {
		seen[o.Text]++
	}
	for text, n := range seen {
		if n > 1 {
			t.Errorf("said %d times: %s", n, text)
		}
	}
	if seen["The disk usage is in /srv/nisse/report.txt: 53 bytes."] != 1 || seen["Reading the disk usage."] != 1 {
		t.Errorf("said: %v", seen)
	}
	notices := slices.DeleteFunc(p.said(), func(s string) bool { return !strings.HasPrefix(s, "Restarted") })
	if mid := strings.HasPrefix(point, "runtime.intent.after") || strings.HasPrefix(point, "runtime.outcome.before"); mid && len(notices) != 1 && !strings.HasSuffix(point, ":9") {
		t.Errorf("notices of the restart: %q, want one", notices)
	}
	results := map[string]int{}
	for _, e := range events {
		if e.Type == event.ToolResult {
			var r event.Result
			if err := e.Decode(&r); err != nil {
				t.Fatal(err)
			}
			results[r.Call]++
		}
	}
	for id, n := range results {
		if n != 1 {
			t.Errorf("call %s has %d results", id, n)
		}
	}
}

// What a pod costs that has done one piece of work and waits for the next.
func BenchmarkAtRest(b *testing.B) {
	p := launch(b, "")
	p.open("wi-1", "what is in /srv/nisse?")
	p.until("the item ends", p.ended("wi-1"))
	p.until("the messages are acknowledged", func() bool { return p.acked == 1 })
	for b.Loop() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		for _, line := range strings.Split(string(raw), "\n") {
			var kb float64
			if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kb); n == 1 {
				b.ReportMetric(kb/1024, "MiB-RSS")
			}
			if n, _ := fmt.Sscanf(line, "RssAnon: %f kB", &kb); n == 1 {
				b.ReportMetric(kb/1024, "MiB-anon")
			}
		}
	}
}
