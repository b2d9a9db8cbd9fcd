// Package port keeps ports for servers that tests start, kill and start again.
package port

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Kept is a port of the loopback device that the system chose. It is held by a socket that is bound to it and does not listen:
// a server that sets SO_REUSEADDR, as they all do, may listen on it as often as it likes, while the system gives it to nobody else,
// neither to another listener nor to an outgoing connection. A port that was merely looked for and let go is free for both.
type Kept struct {
	Number int
	socket int
}

// Keep a port until Release.
func Keep() (*Kept, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep a port: %w", os.NewSyscallError("socket", err))
	}
	k := &Kept{socket: socket}
	if k.Number, err = bind(socket); err != nil {
		_ = k.Release()
		return nil, fmt.Errorf("keep a port: %w", err)
	}
	return k, nil
}

func bind(socket int) (int, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return at.(*syscall.SockaddrInet4).Port, nil
}

// Release it to whoever wants it.
func (k *Kept) Release() error { return os.NewSyscallError("close", syscall.Close(k.socket)) }

// For a test, until its end.
func For(t testing.TB) int {
	t.Helper()
	k, err := Keep()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Release(); err != nil {
			t.Error(err)
		}
	})
	return k.Number
}
