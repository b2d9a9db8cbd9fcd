package stack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Process is one component. It is started again whenever it dies of a crash point, as a kubelet would.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	args []string
	env  []string
	log  string
	// crashes counts deaths by SIGKILL that the stack did not ask for.
	crashes int
	stopped bool
}

func (s *Stack) launch(name string, env []string, args ...string) {
	s.T.Helper()
	p := &Process{name: name, args: args, env: env, log: filepath.Join(s.Dir, name+".log")}
	if at := s.opts.Crash[name]; at != "" {
		p.env = append(p.env, "NISSE_CRASH_AT="+at, "NISSE_CRASH_ONCE="+filepath.Join(s.Dir, name+".crashed"))
	}
	s.mu.Lock()
	s.procs[name] = p
	s.mu.Unlock()
	s.must(s.spawn(p))
	s.T.Cleanup(func() { s.Kill(name) }) // before what it leans on, and in reverse order
}

// spawn its process.
func (s *Stack) spawn(p *Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spawnLocked(p)
}

func (s *Stack) spawnLocked(p *Process) error {
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(binaries, p.name), p.args...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + s.Dir}, p.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done, started := make(chan struct{}), make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that forked ends, not the program (go.dev/issue/27505): this goroutine keeps its
		// thread for as long as the child lives.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			runtime.UnlockOSThread()
			return
		}
		_ = cmd.Wait()
		runtime.UnlockOSThread()
		s.mu.Lock()
		stopped := p.stopped
		if !stopped && cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			p.crashes++
		}
		s.mu.Unlock()
		close(done)
		if stopped || s.T.Context().Err() != nil {
			return
		}
		// A kubelet waits before it starts a container again; a short wait keeps a broken one from spinning.
		timer := time.NewTimer(200 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-s.T.Context().Done():
		case <-timer.C:
			s.mu.Lock()
			defer s.mu.Unlock()
			if p.stopped { // it was killed while it was down; Revive starts it
				return
			}
			if err := s.spawnLocked(p); err != nil {
				s.T.Log(err)
			}
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// Kill a component with SIGKILL and leave it down until Revive.
func (s *Stack) Kill(name string) {
	s.T.Helper()
	s.mu.Lock()
	p := s.procs[name]
	p.stopped = true
	cmd, done := p.cmd, p.done
	s.mu.Unlock()
	select {
	case <-done: // its number may be another's by now
	default:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

// Revive a component that was killed.
func (s *Stack) Revive(name string) {
	s.T.Helper()
	s.mu.Lock()
	p := s.procs[name]
	p.stopped = false
	s.mu.Unlock()
	s.must(s.spawn(p))
}

// PID of a component as it runs now.
func (s *Stack) PID(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[name].cmd.Process.Pid
}

// Log is the path of what a component writes.
func (s *Stack) Log(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[name].log
}

// Crashes tells how often a component died of a crash point.
func (s *Stack) Crashes(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[name].crashes
}

// Dump the last lines of every component's log into the test's.
func (s *Stack) Dump() {
	for _, name := range Components {
		b, err := os.ReadFile(filepath.Join(s.Dir, name+".log"))
		if err != nil {
			continue
		}
		lines := strings.Split(string(bytes.TrimSpace(b)), "\n")
		if len(lines) > 25 {
			lines = lines[len(lines)-25:]
		}
		s.T.Logf("--- %s\n%s", name, strings.Join(lines, "\n"))
	}
}
