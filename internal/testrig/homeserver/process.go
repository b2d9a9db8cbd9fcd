package homeserver

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child that cannot outlive this test binary, however that ends.
type process struct {
	os   *os.Process
	done chan struct{} // closed when it has ended
	err  error         // how it ended; to be read once done is closed
}

// spawn starts a command whose output goes to a file.
func spawn(output, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the output file: %w", err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that forked ends, not the program (go.dev/issue/27505): this
		// goroutine keeps its thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.os = cmd.Process
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
