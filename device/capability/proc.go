package capability

import (
	"strings"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/proc"
	"nisse.io/nisse/internal/manifest"
)

// patience with a process that was sent a signal, to tell whether it has ended.
const patience = 2 * time.Second

// owner whose processes the verdict lets be touched; nil when anybody's.
func (r Runner) owner(v manifest.Verdict) (*uint32, error) {
	if v.Owner == manifest.Any {
		return nil, nil
	}
	uid, err := proc.UID(r.user())
	return &uid, err
}

func (r Runner) procList(a manifest.ProcListArgs, v manifest.Verdict) (func(int) any, error) {
	owner, err := r.owner(v)
	if err != nil {
		return nil, err
	}
	all, err := proc.List()
	if err != nil {
		return nil, err
	}
	users := map[uint32]string{}
	var listed []wire.Process
	for _, p := range all {
		if a.Name != "" && p.Name != a.Name {
			continue
		}
		if users[p.UID] == "" {
			users[p.UID] = proc.Name(p.UID)
		}
		w := wire.Process{PID: p.PID, Parent: p.Parent, Start: p.Start, User: users[p.UID], Name: p.Name, State: p.State, MemoryBytes: p.Resident, CPUSeconds: p.CPUSeconds}
		// Command lines hold secrets more often than they should.
		if owner == nil || p.UID == *owner {
			w.Argv = p.Argv
		}
		listed = append(listed, w)
	}
	return func(keep int) any {
		processes, more := rows(listed, keep, func(p wire.Process) int { return len(p.Name) + len(p.User) + len(strings.Join(p.Argv, `","`)) }, func(p wire.Process) wire.Process { return p })
		return wire.ProcListResult{Processes: processes, Truncated: more}
	}, nil
}

func (r Runner) procKill(a manifest.ProcKillArgs, v manifest.Verdict) (func(int) any, error) {
	owner, err := r.owner(v)
	if err != nil {
		return nil, err
	}
	p, ended, err := proc.Kill(proc.Target{PID: a.PID, Start: a.Start, Owner: owner}, a.SignalOf(), patience)
	if err != nil {
		return nil, err
	}
	return func(int) any { return wire.ProcKillResult{PID: p.PID, Name: p.Name, Ended: ended} }, nil
}
