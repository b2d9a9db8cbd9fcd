package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/program"
)

// TestMain makes the test binary a process that waits to be told something.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGUSR1)
		fmt.Println("ready")
		s := <-got
		fmt.Println(s)
		select {}
	}
	os.Exit(m.Run())
}

type child struct {
	*exec.Cmd
	say chan string
}

// start a child that is ready.
func start(t *testing.T, uid uint32) child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "wait", "a secret")
	if uid != uint32(os.Geteuid()) {
		c = exec.Command("/bin/sleep", "1000") // who is not us may not reach the test's directory
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	k := child{c, make(chan string, 10)}
	go func() {
		defer close(k.say)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			k.say <- lines.Text()
		}
	}()
	if uid == uint32(os.Geteuid()) {
		if line := <-k.say; line != "ready" {
			t.Fatal(line)
		}
	}
	return k
}

// Whoever can start a process decides how long its command line is.
func TestLongCommandLinesAreCut(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	c := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "read x; :", long, long}}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	p, err := Look(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Join(p.Argv, " ")); n > maxArgv || p.Argv[0] != "sh" {
		t.Errorf("%d bytes are read of it", n)
	}
}

func (c child) target(t *testing.T) Target {
	t.Helper()
	p, err := Look(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return Target{PID: p.PID, Start: p.Start}
}

func TestList(t *testing.T) {
	c := start(t, uint32(os.Geteuid()))
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p Process) bool { return p.PID == c.Process.Pid })
	if i < 0 {
		t.Fatal("the child is not listed")
	}
	p := all[i]
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(self)
	name = name[:min(len(name), 15)] // which is all that the kernel keeps of one
	if p.Parent != os.Getpid() || p.UID != uint32(os.Geteuid()) || p.Resident <= 0 || p.Name != name || !slices.Equal(p.Argv[1:], []string{"wait", "a secret"}) {
		t.Errorf("%+v", p)
	}
	again, err := Look(p.PID)
	if err != nil || again.Start != p.Start || !strings.Contains(p.Start, "@") {
		t.Errorf("%s, %s, %v", again.Start, p.Start, err)
	}
	if !slices.IsSortedFunc(all, func(a, b Process) int { return a.PID - b.PID }) {
		t.Error("not sorted")
	}
}

func TestKill(t *testing.T) {
	own := uint32(os.Geteuid())
	c := start(t, own)
	target := c.target(t)
	target.Owner = &own
	if _, ended, err := Kill(target, "USR1", 0); err != nil || ended {
		t.Errorf("ended %t, %v", ended, err)
	}
	if line := <-c.say; line != syscall.SIGUSR1.String() {
		t.Error(line)
	}
	p, ended, err := Kill(target, "TERM", time.Minute)
	if err != nil || !ended || p.PID != c.Process.Pid {
		t.Errorf("%+v, ended %t, %v", p, ended, err)
	}
	_ = c.Wait()
	if w := c.ProcessState.Sys().(syscall.WaitStatus); w.Signal() != syscall.SIGTERM {
		t.Errorf("it ended by %v", w.Signal())
	}
	if _, _, err := Kill(target, "KILL", 0); !errors.Is(err, program.ErrRefused) || !errors.Is(err, ErrGone) {
		t.Errorf("of what is gone: %v", err)
	}
}

func TestKillRefuses(t *testing.T) {
	own := uint32(os.Geteuid())
	other := own + 1
	c := start(t, own)
	good := c.target(t)
	self, err := Look(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	parent, err := Look(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	first, err := Look(1)
	if err != nil {
		t.Fatal(err)
	}
	ticks, boot, _ := strings.Cut(good.Start, "@")
	for name, target := range map[string]Target{
		"number that is another's by now": {PID: good.PID, Start: "1@" + boot},
		"number of another boot":          {PID: good.PID, Start: ticks + "@00000000"},
		"process of another":              {PID: good.PID, Start: good.Start, Owner: &other},
		"the device":                      {PID: self.PID, Start: self.Start},
		"what runs the device":            {PID: parent.PID, Start: parent.Start},
		"the machine's first":             {PID: first.PID, Start: first.Start},
		"everything":                      {PID: -1, Start: good.Start},
		"the group":                       {PID: 0, Start: good.Start},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Kill(target, "KILL", 0); !errors.Is(err, program.ErrRefused) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, _, err := Kill(good, "9", 0); !errors.Is(err, program.ErrRefused) {
		t.Errorf("a signal by number: %v", err)
	}
	if err := c.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the child is gone: %v", err)
	}
}

// As root the owner of others is seen; without it they could not be signalled anyway.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		first, err := Look(1)
		if err != nil {
			t.Fatal(err)
		}
		own := uint32(os.Geteuid())
		if _, _, err := Kill(Target{PID: 1, Start: first.Start, Owner: &own}, "TERM", 0); !errors.Is(err, program.ErrRefused) {
			t.Errorf("got %v", err)
		}
		return
	}
	nobody, root := uint32(65534), uint32(0)
	c := start(t, nobody)
	target := c.target(t)
	target.Owner = &root
	if _, _, err := Kill(target, "KILL", 0); !errors.Is(err, program.ErrRefused) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("got %v", err)
	}
	target.Owner = &nobody
	if _, ended, err := Kill(target, "KILL", time.Minute); err != nil || !ended {
		t.Errorf("ended %t, %v", ended, err)
	}
}

func TestParse(t *testing.T) {
	tail := " S 7 1 1 0 -1 4194560 1 2 3 4 250 150 7 8 20 0 1 0 987654 1000000 25 18446744073709551615"
	for _, c := range []struct {
		name, stat string
		want       Process
		bad        bool
	}{
		{name: "plain", stat: "42 (name)" + tail, want: Process{PID: 42, Parent: 7, Name: "name", State: "S", Start: "987654", CPUSeconds: 4, Resident: 25 * int64(os.Getpagesize())}},
		{name: "a name that looks like more", stat: "42 (a) S 1 (b))" + tail, want: Process{PID: 42, Parent: 7, Name: "a) S 1 (b)", State: "S", Start: "987654", CPUSeconds: 4, Resident: 25 * int64(os.Getpagesize())}},
		{name: "short", stat: "42 (name) S 1", bad: true},
		{name: "no name", stat: "42" + tail, bad: true},
		{name: "not numbers", stat: "42 (name)" + strings.Replace(tail, "987654", "x", 1), bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse([]byte(c.stat))
			if (err != nil) != c.bad {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); !c.bad && d != "" {
				t.Error(d)
			}
		})
	}
	for status, want := range map[string]uint32{"Name:\tx\nUid:\t7\t7\t7\t7\n": 7, "Uid:\t7\t0\t7\t7\n": 0, "Uid:\t7\t7\t0\t7\n": 0} {
		if got, err := owner([]byte(status)); err != nil || got != want {
			t.Errorf("%q: %d, %v", status, got, err)
		}
	}
	if _, err := owner([]byte("Uid:\t7\n")); err == nil {
		t.Error("half an owner is taken")
	}
}

func TestProbe(t *testing.T) {
	if got, err := Probe(); err != nil || got == "" {
		t.Errorf("%q, %v", got, err)
	}
}
