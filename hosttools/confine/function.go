package confine

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/confine/shim"
)

// Function of this program that a shim runs as a user: the program that calls it stays what it is, and whoever the files belong to is who
// touches them. The caller gives the Cmd of what comes back its stdin and stdout.
func Function(user *User, name string) (*Start, error) {
	s := &Start{}
	if err := s.shim(shim.Order{Function: name, User: user}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Serve a function: if this process is a shim that was started for it, become the user, answer what comes by stdin on stdout, and exit.
// Call it in an init function of the package that has the function, so that no program which links that package can forget it.
func Serve(name string, do func(in []byte) (out []byte, err error)) {
	if shim.Waiting == nil || shim.Waiting.Function != name {
		return
	}
	unix.Umask(0o022)
	if u := shim.Waiting.User; u != nil {
		shim.Try("groups of "+u.Name, syscall.Setgroups(u.Groups))
		shim.Try("group of "+u.Name, syscall.Setresgid(u.GID, u.GID, u.GID))
		shim.Try("user "+u.Name, syscall.Setresuid(u.UID, u.UID, u.UID))
	}
	shim.Tie(*shim.Waiting)
	unix.Close(shim.ReportFD)
	in, err := io.ReadAll(os.Stdin)
	var out []byte
	if err == nil {
		out, err = do(in)
	}
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
