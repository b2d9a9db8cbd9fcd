package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/confine"
)

// try one thing that a program may not be allowed, and say how it went.
func try(what, path string, more []string) {
	var err error
	switch what {
	case "read":
		_, err = os.ReadFile(path)
	case "list":
		_, err = os.ReadDir(path)
	case "write":
		err = os.WriteFile(path, []byte("new"), 0o644)
	case "truncate":
		err = os.Truncate(path, 0)
	case "remove":
		err = os.Remove(path)
	case "move":
		err = os.Rename(path, filepath.Join(more[0], "moved"))
	case "link":
		err = os.Link(path, filepath.Join(more[1], "hard"))
	case "device":
		err = unix.Mknod(path, unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0)))
	case "run":
		err = exec.Command(path).Run()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("done")
}

// status of this process as the kernel tells it.
func status(field string) string {
	b, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func identity() {
	groups, _ := os.Getgroups()
	var core, files unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	fmt.Printf("%d %d %d %d %v nnp=%s core=%d files=%d\n", os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), groups, status("NoNewPrivs"), core.Max, files.Max)
}

// descriptors that this process was given.
func descriptors() {
	var open []string
	for fd := range 64 {
		// Go's own are of its poller, and of the CPUs that it may use.
		name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err == nil && !strings.HasPrefix(name, "anon_inode:[event") && !strings.HasPrefix(name, "/sys/fs/cgroup/") {
			open = append(open, strconv.Itoa(fd))
		}
	}
	fmt.Print(strings.Join(open, " "))
}

// runaway leaves a process that is in no group and no session of its parent, nor its child, and tells its number.
func runaway(file string) {
	middle := exec.Command(os.Args[0], "act", "middle", file)
	middle.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := middle.Run(); err != nil {
		panic(err)
	}
}

func middle(file string) {
	p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "act", "sleep"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(p.Pid)), 0o644); err != nil {
		panic(err)
	}
}

// adopter runs one command that stays and one that leaves a process behind, and tells what is left of both.
func adopter(dir, account string) {
	if err := AdoptOrphans(); err != nil {
		panic(err)
	}
	user, err := confine.Lookup(account)
	if err != nil {
		panic(err)
	}
	c := Command{Timeout: time.Minute, Keep: 100, Confine: &confine.Confinement{User: user, Rules: &confine.Rules{Write: []string{dir}}}}
	other := make(chan Result, 1)
	go func() {
		stays := c
		stays.Argv, stays.Timeout = []string{os.Args[0], "act", "stayer", dir + "/other"}, 10*time.Second
		r, _ := Run(context.Background(), stays)
		other <- r
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for content := ""; content == "" && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		b, _ := os.ReadFile(dir + "/other")
		content = string(b)
	}
	c.Argv = []string{os.Args[0], "act", "runaway", dir + "/orphan"}
	r, err := Run(context.Background(), c)
	if err != nil || r.ExitCode != 0 {
		fmt.Print(r.Stderr.Text(), err)
		return
	}
	say := func(file string) string {
		b, _ := os.ReadFile(dir + "/" + file)
		pid, err := strconv.Atoi(string(b))
		if err != nil || gone(pid) {
			return file + " gone"
		}
		return file + " alive"
	}
	fmt.Print(say("other"), ", ", say("orphan"))
}
