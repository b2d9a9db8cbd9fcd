package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/internal/testrig"
)

// TestMain makes the test binary a program that does as it is told, for no shell may be run here.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "act" {
		act(os.Args[2], os.Args[3:])
		return
	}
	os.Exit(m.Run())
}

func act(what string, args []string) {
	switch what {
	case "say":
		fmt.Print(args[0])
		fmt.Fprint(os.Stderr, args[1])
	case "exit":
		n, _ := strconv.Atoi(args[0])
		os.Exit(n)
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {}
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		wd, _ := os.Getwd()
		fmt.Println(wd)
		in, err := os.Stdin.Read(make([]byte, 1))
		fmt.Println(in, err)
		fmt.Println(syscall.Getpgrp() == os.Getpid())
	case "flood":
		n, _ := strconv.Atoi(args[0])
		for i := range n {
			fmt.Printf("line %07d\n", i)
		}
	case "echo":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "bytes":
		os.Stdout.Write([]byte{0xff, 0, 1})
	case "sleep":
		testrig.Hang()
	case "children": // one in the group, one in a session of its own, both holding the pipes; their numbers go to a file
		var pids []string
		for _, session := range []bool{false, true} {
			p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "act", "sleep"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: session}})
			if err != nil {
				panic(err)
			}
			pids = append(pids, strconv.Itoa(p.Pid))
		}
		fmt.Print("born")
		if err := os.WriteFile(args[0], []byte(strings.Join(pids, " ")), 0o600); err != nil {
			panic(err)
		}
		if args[1] == "stay" {
			testrig.Hang()
		}
	case "try":
		try(args[0], args[1], args[2:])
	case "identity":
		identity()
	case "capabilities":
		fmt.Println(status("CapPrm"))
	case "again":
		p := exec.Command(os.Args[0], append([]string{"act"}, args...)...)
		p.Stdout, p.Stderr = os.Stdout, os.Stderr
		if err := p.Run(); err != nil {
			panic(err)
		}
	case "tmp":
		try("write", os.Getenv("TMPDIR")+"/x", nil)
	case "descriptors":
		descriptors()
	case "runaway":
		runaway(args[0])
	case "middle":
		middle(args[0])
	case "stayer": // keeps a process that has left its group and its parent, and waits
		runaway(args[0])
		testrig.Hang()
	case "adopter":
		adopter(args[0], args[1])
	case "parent": // runs a command that outlives it unless the kernel sees to it
		_, _ = Run(context.Background(), Command{Argv: []string{os.Args[0], "act", "children", args[0], "stay"}, Timeout: time.Hour, Keep: 10})
	}
}

func run(t *testing.T, timeout time.Duration, keep int, args ...string) Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Command{Argv: append([]string{self, "act"}, args...), Timeout: timeout, Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want Result
	}{
		{"both streams", []string{"say", "out", "err"}, Result{Stdout: Output{Head: []byte("out"), Total: 3}, Stderr: Output{Head: []byte("err"), Total: 3}}},
		{"arguments are not read by a shell", []string{"say", "$HOME `id` *;|&", ""}, Result{Stdout: Output{Head: []byte("$HOME `id` *;|&"), Total: 15}}},
		{"exit code", []string{"exit", "3"}, Result{ExitCode: 3}},
		{"signal", []string{"die"}, Result{ExitCode: -1, Signal: "terminated"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, run(t, time.Minute, 1000, c.args...), cmp.Comparer(func(a, b []byte) bool { return bytes.Equal(a, b) })); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSurroundings(t *testing.T) {
	t.Setenv("SECRET", "x")
	got := run(t, time.Minute, 1000, "env").Stdout.Text()
	want := strings.Join(append(append([]string{}, Environment...), "/", "0 EOF", "true", ""), "\n")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestInput(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("0123456789", 20000) // more than a pipe holds
	r, err := Run(t.Context(), Command{Argv: []string{self, "act", "echo"}, Timeout: time.Minute, Keep: len(want), Stdin: []byte(want)})
	if err != nil || string(r.Stdout.Bytes()) != want {
		t.Errorf("%v, %d bytes", err, r.Stdout.Total)
	}
}

func TestLongOutputKeepsHeadAndTail(t *testing.T) {
	r := run(t, time.Minute, 300, "flood", "100000")
	if r.Stdout.Total != 1300000 || len(r.Stdout.Head) != 200 || len(r.Stdout.Tail) != 100 {
		t.Fatalf("%d bytes, kept %d and %d", r.Stdout.Total, len(r.Stdout.Head), len(r.Stdout.Tail))
	}
	text := r.Stdout.Text()
	if !strings.HasPrefix(text, "line 0000000\n") || !strings.HasSuffix(text, "line 0099999\n") || !strings.Contains(text, "[… 1299700 bytes left out …]") {
		t.Errorf("got %q", text)
	}
}

func TestBinaryOutput(t *testing.T) {
	r := run(t, time.Minute, 300, "bytes")
	if r.Stdout.IsText() || r.Stdout.Base64() != "/wAB" {
		t.Errorf("text %t, %s", r.Stdout.IsText(), r.Stdout.Base64())
	}
}

// children waits for the numbers that "children" writes.
func children(t *testing.T, file string) (member, runaway int) {
	t.Helper()
	testrig.Until(t, "the children", func() bool {
		b, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		n, err := fmt.Sscan(string(b), &member, &runaway)
		return err == nil && n == 2
	})
	t.Cleanup(func() { _ = syscall.Kill(runaway, syscall.SIGKILL) })
	return member, runaway
}

// gone tells whether a process has ended; a zombie that nobody reaps has.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(b, []byte(") Z "))
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	began := time.Now()
	r := run(t, 2*time.Second, 1000, "children", file, "stay")
	if !r.TimedOut || r.Signal != "killed" || r.Stdout.Text() != "born" {
		t.Errorf("got %+v", r)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	member, _ := children(t, file)
	testrig.Until(t, "the group's end", func() bool { return gone(member) })
}

func TestNothingStaysInTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	r := run(t, time.Minute, 1000, "children", file, "go")
	if r.TimedOut || r.ExitCode != 0 || r.Stdout.Text() != "born" {
		t.Errorf("got %+v", r)
	}
	member, _ := children(t, file)
	testrig.Until(t, "the group's end", func() bool { return gone(member) })
}

func TestContextKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		testrig.Until(t, "the children", func() bool { _, err := os.Stat(file); return err == nil })
		cancel()
	}()
	r, err := Run(ctx, Command{Argv: []string{self, "act", "children", file, "stay"}, Timeout: time.Minute, Keep: 10})
	if err != nil || r.TimedOut || r.Signal != "killed" {
		t.Errorf("got %+v, %v", r, err)
	}
	member, _ := children(t, file)
	testrig.Until(t, "the group's end", func() bool { return gone(member) })
}

// A daemon that is killed takes its command with it.
func TestDiesWithItsParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(self, []string{self, "act", "parent", file}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	member, _ := children(t, file)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", member))
	if err != nil {
		t.Fatal(err)
	}
	var commandPID int
	_, rest, _ := strings.Cut(string(b), ") ")
	if _, err := fmt.Sscanf(rest, "S %d", &commandPID); err != nil {
		if _, err := fmt.Sscanf(rest[2:], "%d", &commandPID); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(member, syscall.SIGKILL) })
	if gone(commandPID) {
		t.Fatal("the command is not running")
	}
	_ = p.Kill()
	_, _ = p.Wait()
	testrig.Until(t, "the command's end", func() bool { return gone(commandPID) })
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	for link, target := range map[string]string{"tool": "/bin/sh", "tool2": "tool", "python": "/bin/true"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, argv := range [][]string{nil, {"true"}, {"./true"}, {"/bin/../bin/true"}, {"/bin/sh", "-c", "id"}, {dir + "/tool"}, {dir + "/tool2"}, {dir + "/python"}, {"/usr/bin/env", "id"}, {dir}} {
		t.Run(strings.Join(argv, " "), func(t *testing.T) {
			if r, err := Run(t.Context(), Command{Argv: argv, Timeout: time.Second, Keep: 10}); !errors.Is(err, ErrRefused) {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
	if _, err := Run(t.Context(), Command{Argv: []string{dir + "/none"}, Timeout: time.Second}); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
	notExecutable := filepath.Join(dir, "text")
	if err := os.WriteFile(notExecutable, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Command{Argv: []string{notExecutable}, Timeout: time.Second}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func TestOutput(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Output
		text string
		is   bool
	}{
		{"nothing", Output{}, "", true},
		{"no gap, rune over the seam", Output{Head: []byte("a\xc3"), Tail: []byte("\xbcb"), Total: 4}, "aüb", true},
		{"gap cuts runes", Output{Head: []byte("a\xc3"), Tail: []byte("\xbcb"), Total: 5}, "a\n[… 3 bytes left out …]\nb", true},
		{"gap cuts a long rune", Output{Head: []byte("a\xf0\x9f\x98"), Tail: []byte("\x9f\x98\x80b"), Total: 10}, "a\n[… 8 bytes left out …]\nb", true},
		{"invalid", Output{Head: []byte("a\xff"), Total: 2}, "a\xff", false},
		{"NUL", Output{Head: []byte("a\x00"), Total: 2}, "a\x00", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.Text(); got != c.text || c.in.IsText() != c.is {
				t.Errorf("got %q, text %t", got, c.in.IsText())
			}
		})
	}
	o := Output{Head: []byte("0123456789"), Total: 10}
	if s := o.Shrink(6); string(s.Head) != "0123" || string(s.Tail) != "89" || s.Missing() != 4 {
		t.Errorf("got %q, %q", s.Head, s.Tail)
	}
	o = Output{Head: []byte("01"), Tail: []byte("56789"), Total: 10}
	if s := o.Shrink(3); string(s.Head) != "01" || string(s.Tail) != "9" || s.Missing() != 7 {
		t.Errorf("got %q, %q", s.Head, s.Tail)
	}
	if s := o.Shrink(100); s.Total != 10 || len(s.Head) != 2 {
		t.Errorf("got %+v", s)
	}
}

// A child that does not end keeps nobody waiting for longer than patience.
func TestWaitHasAnEnd(t *testing.T) {
	p := exec.Command("/bin/sleep", "1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if wait(p.Process.Pid, time.Now().Add(10*time.Millisecond)) {
		t.Error("it has ended")
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !wait(p.Process.Pid, time.Now().Add(time.Minute)) {
		t.Error("it has not ended")
	}
	if !wait(p.Process.Pid, time.Now().Add(time.Minute)) {
		t.Error("one that is gone is waited for")
	}
}
