package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/hosttools/desktoptest"
	"nisse.io/nisse/hosttools/proc"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/e2e/rig"
)

// done is a step of a plan, and what must be seen of it: a part of its result, and what the machine itself shows.
type done struct {
	rig.Step
	result string
	effect func(t *testing.T)
}

// machine is one machine of the test, with the plan of the agent that works on it.
type machine struct {
	*rig.Machine
	steps []done
	// missing means, whose steps are refused: they are asked for by themselves.
	missing []rig.Step
}

func (m *machine) plan(capability string, args any, result string, effects ...func(t *testing.T)) {
	d := done{Step: rig.Step{Device: m.Name, Capability: capability, Args: args}, result: result}
	if len(effects) > 0 {
		d.effect = effects[0]
	}
	m.steps = append(m.steps, d)
}

// needs a program for what follows, or notes that the step must be refused.
func (m *machine) needs(there bool, capability string, args any, result string, effects ...func(t *testing.T)) {
	if there {
		m.plan(capability, args, result, effects...)
		return
	}
	m.missing = append(m.missing, rig.Step{Device: m.Name, Capability: capability, Args: args})
}

// Every kind of work over the whole way, from the words in a room to what is then so on the machine: by a device that is an account of its own,
// and by one that is root in a network namespace of its own.
func TestMachines(t *testing.T) {
	r := rig.Open(t)
	own, root := &machine{Machine: r.Machine(t, "e2e-own")}, &machine{Machine: r.RootMachine(t, "e2e-root")}
	userRules, elevatedRules := ownPlan(t, own), rootPlan(t, root)
	own.Allow(t, api.PrivilegeUser, userRules)
	root.Allow(t, api.PrivilegeUser, "commands: [{argv: [/usr/bin/id, -un], approval: Required}]\n")
	root.Allow(t, api.PrivilegeElevated, elevatedRules)
	// An agent without Elevated is nobody special on the machine whose device is root.
	own.steps = append(own.steps, done{Step: rig.Step{Device: root.Name, Capability: manifest.Exec, Args: manifest.ExecArgs{Argv: []string{"/usr/bin/id", "-un"}}},
		result: `"stdout":"` + rig.DeviceUser + `\n"`})

	tools := func(m *machine) []string {
		names := map[string]bool{}
		for _, s := range m.steps {
			names[s.Capability] = true
		}
		for _, s := range m.missing {
			names[s.Capability] = true
		}
		return slices.Sorted(maps.Keys(names))
	}
	workers := []*rig.Rig{r.Worker(t, "e2e-2", api.PrivilegeUser, tools(own), own.Machine, root.Machine), r.Worker(t, "e2e-3", api.PrivilegeElevated, tools(root), root.Machine)}
	stories := make([]*rig.Story, 2)
	for i, m := range []*machine{own, root} {
		m.Online(t)
		workers[i].AwaitAgent(t)
		var steps []rig.Step
		for _, d := range m.steps {
			steps = append(steps, d.Step)
		}
		stories[i] = workers[i].AskExactly(t, steps)
	}
	for _, s := range stories {
		s.Gate(api.GatePlan, 1)
		s.Hear(rig.Gates, `rev-1`)
		if jobs := s.Jobs(); len(jobs) != 0 {
			t.Errorf("before anybody approved: %+v", jobs)
		}
		s.Say("approve rev-1")
	}
	for i, m := range []*machine{own, root} {
		stories[i].Closed(api.ResultDone)
		m.wasDone(t, stories[i].Jobs())
		for _, step := range m.missing {
			s := workers[i].AskExactly(t, []rig.Step{step})
			s.Gate(api.GatePlan, 1)
			s.Hear(rig.Gates, `rev-1`)
			s.Say("approve rev-1")
			s.Hear(workers[i].Account, `(?i)refused|Unavailable`)
			s.Closed(api.ResultDone)
		}
		m.AuditIsWhole(t)
	}
}

// wasDone once each, and is so.
func (m *machine) wasDone(t *testing.T, jobs []api.DeviceJob) {
	t.Helper()
	if len(jobs) != len(m.steps) {
		t.Errorf("%d jobs of %d steps", len(jobs), len(m.steps))
	}
	for n, want := range m.steps {
		i := slices.IndexFunc(jobs, func(j api.DeviceJob) bool { return int(j.Spec.Step) == n+1 })
		if i < 0 {
			t.Errorf("step %d, %s, has no job", n+1, want.Capability)
			continue
		}
		j := jobs[i]
		if j.Spec.Device != want.Device || j.Spec.Capability != want.Capability || j.Status.State != api.JobSucceeded || !strings.Contains(j.Status.Result, want.result) {
			t.Errorf("step %d, %s on %s: %s %s, %s; want a result with %s", n+1, j.Spec.Capability, j.Spec.Device, j.Status.State, j.Status.Message, j.Status.Result, want.result)
		}
		if want.effect != nil {
			want.effect(t)
		}
	}
}

// ownPlan of what a device can do that is not root, and the manifest that allows it.
func ownPlan(t *testing.T, m *machine) (rules string) {
	display, desktop := desktoptest.X11(t)
	_, noClipboard := program.Find("xclip")
	host, containers := m.Engine(t)
	config, _, packages := m.Apt(t)
	remote, url := m.Remote(t)
	tree, made := filepath.Join(m.Files, "tool"), filepath.Join(m.Files, "made.txt")
	victim := started(t, rig.DeviceUser)

	m.plan(manifest.FSWrite, manifest.WriteArgs{Path: made, Content: "by an agent"}, `"bytes":11`, holds(made, "by an agent", rig.DeviceUser))
	m.plan(manifest.Exec, manifest.ExecArgs{Argv: []string{"/usr/bin/id", "-un"}}, `"stdout":"`+rig.DeviceUser+`\n"`)
	m.plan(manifest.GitClone, manifest.GitCloneArgs{URL: url, Path: tree}, `"branch":"main"`)
	m.plan(manifest.FSWrite, manifest.WriteArgs{Path: filepath.Join(tree, "a.txt"), Content: "a"}, `"bytes":1`)
	m.plan(manifest.GitStatus, manifest.GitStatusArgs{Path: tree}, `"path":"a.txt"`)
	m.plan(manifest.GitCommit, manifest.GitCommitArgs{Path: tree, Files: []string{"a.txt"}, Message: "second", Author: "Lucas <lucas@example.org>"}, `"commit":"`)
	m.plan(manifest.GitPush, manifest.GitPushArgs{Path: tree, URL: url, Branch: "main"}, `"branch":"main"`, func(t *testing.T) {
		t.Helper()
		if got := m.Git(t, "-C", remote, "log", "-1", "--format=%s of %an", "main", "--", "a.txt"); got != "second of Lucas" {
			t.Errorf("in the remote's main a.txt is %q", got)
		}
	})
	m.plan(manifest.GitStatus, manifest.GitStatusArgs{Path: tree}, `"changes":[]`)
	m.needs(packages, manifest.PkgSearch, manifest.PkgSearchArgs{Query: "nisse"}, `"name":"nisse-e2e"`)
	m.plan(manifest.ProcList, manifest.ProcListArgs{Name: "sleep"}, fmt.Sprintf(`"pid":%d,`, victim.PID))
	m.plan(manifest.ProcKill, manifest.ProcKillArgs{PID: victim.PID, Start: victim.Start}, `"ended":true`, gone(victim))
	m.needs(containers, manifest.DockerList, manifest.ContainerListArgs{}, `"name":"web"`)
	m.needs(desktop, manifest.DisplayCapture, manifest.CaptureArgs{}, `"image":"`)
	m.needs(desktop && noClipboard == nil, manifest.ClipboardWrite, manifest.ClipboardWriteArgs{Content: "from an agent"}, `"bytes":13`, func(t *testing.T) {
		t.Helper()
		c := exec.Command("xclip", "-selection", "clipboard", "-out")
		c.Env = display
		if got, err := c.CombinedOutput(); err != nil || string(got) != "from an agent" {
			t.Errorf("the clipboard holds %q, %v", got, err)
		}
	})
	m.needs(desktop && noClipboard == nil, manifest.ClipboardRead, manifest.ClipboardReadArgs{}, `"content":"from an agent"`)
	return fmt.Sprintf(`
environment: {HOME: %[1]s, DISPLAY: %[2]q, DOCKER_HOST: %[3]q, APT_CONFIG: %[4]q}
paths:
  fs.write: [{glob: "%[1]s/**", approval: Required}]
commands: [{argv: [/usr/bin/id, -un], approval: Required}]
repositories: [{operations: [git.clone, git.status, git.commit, git.push], glob: "%[1]s/*", remotes: [%[5]q], approval: Required}]
packages: [{operations: [pkg.search], names: ["*"], approval: Required}]
processes: [{operations: [proc.list, proc.kill], approval: Required}]
containers: [{operations: [docker.container.list], names: ["*"], approval: Required}]
desktop: [{operations: [display.capture, clipboard.read, clipboard.write], approval: Required}]
`, m.Files, program.Variable(display, "DISPLAY"), host, config, url)
}

// rootPlan of what only a device can do that is root, and the manifest that allows it.
func rootPlan(t *testing.T, m *machine) (rules string) {
	config, system, packages := m.Apt(t)
	closed, victim := filepath.Join(m.Files, "closed"), started(t, "nobody")
	if err := os.Mkdir(closed, 0o700); err != nil { // the test's own, who is root
		t.Fatal(err)
	}
	made := filepath.Join(closed, "made.txt")
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", m.Process.Pid))
	if here, herr := os.Readlink("/proc/self/ns/net"); err != nil || herr != nil || space == here {
		t.Fatalf("the device is in network namespace %q, the test in %q: %v, %v", space, here, err, herr)
	}

	m.plan(manifest.Exec, manifest.ExecArgs{Argv: []string{"/usr/bin/id", "-un"}}, `"stdout":"root\n"`)
	m.plan(manifest.Exec, manifest.ExecArgs{Argv: []string{"/usr/bin/readlink", "/proc/self/ns/net"}}, `"stdout":"`+space+`\n"`)
	m.plan(manifest.FSWrite, manifest.WriteArgs{Path: made, Content: "by root"}, `"bytes":7`, holds(made, "by root", "root"))
	m.needs(packages, manifest.PkgInstall, manifest.PkgInstallArgs{Names: []string{"nisse-e2e"}}, `"name":"nisse-e2e"`,
		holds(filepath.Join(system, "usr/share/nisse-e2e/there"), "1.0", "root"))
	m.plan(manifest.ProcKill, manifest.ProcKillArgs{PID: victim.PID, Start: victim.Start}, `"ended":true`, gone(victim))
	return fmt.Sprintf(`
user: root
environment: {APT_CONFIG: %[2]q}
paths:
  fs.write: [{glob: "%[1]s/**", approval: Required}]
commands:
- {argv: [/usr/bin/id, -un], approval: Required}
- {argv: [/usr/bin/readlink, /proc/self/ns/net], approval: Required}
packages: [{operations: [pkg.install], names: ["*"], approval: Required}]
processes: [{operations: [proc.kill], owner: Any, approval: Required}]
`, m.Files, config)
}

// started process of an account, to be killed.
func started(t *testing.T, account string) proc.Process {
	t.Helper()
	uid, err := proc.UID(account)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Wait() }() // so that a killed one is gone
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
	})
	all, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p proc.Process) bool { return p.PID == c.Process.Pid })
	if i < 0 {
		t.Fatal("what was started is not there")
	}
	return all[i]
}

func gone(p proc.Process) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		if err := syscall.Kill(p.PID, 0); err != syscall.ESRCH {
			t.Errorf("process %d is still there: %v", p.PID, err)
		}
	}
}

// holds tells whether a file has this content, and belongs to an account.
func holds(file, want, owner string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", file, got, err)
			return
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; proc.Name(uid) != owner {
			t.Errorf("%s belongs to %s, want %s", file, proc.Name(uid), owner)
		}
	}
}
