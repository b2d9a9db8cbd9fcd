package confine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/confine/shim"
)

// Limits of a program beside those that hold for all: no core dumps, 1024 open files, files of 1 GiB, 4096 processes of its user.
type Limits struct {
	// CPU time.
	CPU time.Duration
}

// Start is a program that is about to start.
type Start struct {
	// Cmd of the shim; the caller gives it stdin, stdout, stderr and what else it wants of the process.
	Cmd *exec.Cmd
	// tmp is the program's own directory for temporary files.
	tmp    string
	report *os.File
	// files that are the shim's once it has started.
	files []*os.File
}

// self is this program, whatever lies under its name by now.
const self = "/proc/self/exe"

// Prepare to start a program. Close the Start in the end, whatever comes of it.
func (c Confinement) Prepare(p *Program, argv, env []string, dir string, l Limits) (*Start, error) {
	s := &Start{}
	o := shim.Order{Argv: argv, Env: env, Dir: dir, User: c.User, CPU: uint64(l.CPU / time.Second), Script: p.script}
	var ruleset *os.File
	if c.Rules != nil {
		if err := s.temporary(c); err != nil {
			return nil, err
		}
		o.Env = append(slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }), "TMPDIR="+s.tmp)
		var err error
		if ruleset, err = c.Rules.set(p, s.tmp, c.uid()); err != nil {
			s.Close()
			return nil, err
		}
	}
	about := []*os.File{p.file}
	if ruleset != nil {
		s.files = append(s.files, ruleset)
		o.Ruleset, about = true, append(about, ruleset)
	}
	if err := s.shim(o, about...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// temporary directory of the program's user.
func (s *Start) temporary(c Confinement) (err error) {
	if s.tmp, err = os.MkdirTemp("", "nisse-"); err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	if c.User != nil {
		err = os.Lchown(s.tmp, c.User.UID, c.User.GID)
	}
	if err != nil {
		return fmt.Errorf("temporary directory: %w", errors.Join(err, os.RemoveAll(s.tmp)))
	}
	return nil
}

// shim that reads an order. Its descriptors from 3 on are the order, the report, and what the order is about.
func (s *Start) shim(o shim.Order, about ...*os.File) error {
	o.Parent = os.Getpid()
	b, err := o.Encode()
	if err != nil {
		return fmt.Errorf("order to the shim: %w", err)
	}
	in, err := memory(b)
	if err != nil {
		return err
	}
	report, out, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	s.report, s.files = report, append(s.files, in, out)
	s.Cmd = &exec.Cmd{Path: self, Args: []string{shim.Name}, Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}, Dir: "/",
		ExtraFiles: append([]*os.File{in, out}, about...), SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}}
	return nil
}

func memory(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("order to the shim: %w", err)
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("order to the shim: %w", err)
	}
	return f, nil
}

// ErrSilent is wrapped when a shim did not report in time. It may have become the program at the last moment.
var ErrSilent = errors.New("the shim does not answer")

// Started waits until the shim has become the program. An error means that it did not, and that the shim has ended or is about to; one
// that wraps ErrSilent, that this is not known.
func (s *Start) Started(within time.Duration) error {
	for _, f := range s.files {
		f.Close()
	}
	s.files = nil
	_ = s.report.SetReadDeadline(time.Now().Add(within))
	b, err := io.ReadAll(io.LimitReader(s.report, mostReport))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	if len(b) == 0 {
		return nil
	}
	r, ok := shim.ParseReport(b)
	if !ok {
		return fmt.Errorf("%w: the shim says %q", ErrUnconfined, b)
	}
	return failure(r)
}

// Close what the start held, and remove the program's temporary directory.
func (s *Start) Close() {
	for _, f := range s.files {
		f.Close()
	}
	s.files = nil
	if s.report != nil {
		s.report.Close()
	}
	if s.tmp != "" {
		_ = os.RemoveAll(s.tmp) // what a program that got away still writes there is nobody's
	}
}

// mostReport of a shim that failed.
const mostReport = 4 << 10

// failure of a shim that could not become the program.
func failure(r shim.Report) error {
	errno := syscall.Errno(r.Errno)
	if r.Step == shim.StepExec {
		return fmt.Errorf("start: %w", errno)
	}
	if r.Step == shim.StepDir {
		return fmt.Errorf("working directory: %w", errno)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnconfined, r.Step, errno)
}
