// Package desktoptest starts displays of a test's own: an X server and a Wayland compositor, both without a screen. A machine that has
// not got their programs has no display, and says so.
package desktoptest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/hosttools/program"
)

// Width and Height of the X server's screen, which is white.
const (
	Width  = 800
	Height = 600
)

// X11 starts an X server and returns the environment of its clients; ok is false where none is installed.
func X11(t testing.TB) (env []string, ok bool) {
	t.Helper()
	file, err := program.Find("Xvfb")
	if err != nil {
		t.Logf("no display of the test's own: %v", err)
		return nil, false
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command(file, "-displayfd", "3", "-screen", "0", fmt.Sprintf("%dx%dx24", Width, Height), "-nolisten", "tcp", "-wr", "-noreset")
	c.ExtraFiles = []*os.File{w}
	start(t, c)
	w.Close()
	number, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("Xvfb tells no display: %v", err)
	}
	return program.Env(nil, "DISPLAY=:"+strings.TrimSpace(number)), true
}

// nobody runs the compositor where the test is root, which it would not run as.
const nobody = 65534

// Wayland starts a compositor and returns the environment of its clients; ok is false where none is installed.
func Wayland(t testing.TB) (env []string, ok bool) {
	t.Helper()
	file, err := program.Find("sway")
	if err != nil {
		t.Logf("no compositor of the test's own: %v", err)
		return nil, false
	}
	dir, err := os.MkdirTemp("", "nisse-wayland") // short, for sockets' names are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := exec.Command(file, "--config", "/dev/null")
	c.Env = program.Env(nil, "XDG_RUNTIME_DIR="+dir, "HOME="+dir, "WLR_BACKENDS=headless", "WLR_RENDERER=pixman", "WLR_LIBINPUT_NO_DEVICES=1")
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	start(t, c)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		found, _ := filepath.Glob(filepath.Join(dir, "wayland-*"))
		for _, f := range found {
			// It is there a moment before anybody listens.
			if c, err := net.Dial("unix", f); err == nil {
				_ = c.Close()
				return program.Env(nil, "XDG_RUNTIME_DIR="+dir, "WAYLAND_DISPLAY="+filepath.Base(f)), true
			}
		}
		if time.Now().After(end) {
			t.Fatal("sway listens at no socket")
		}
	}
}

func start(t testing.TB, c *exec.Cmd) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}
