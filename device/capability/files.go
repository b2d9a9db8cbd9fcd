package capability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/fs"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/manifest"
)

// filesFunction does a call on files as another user than the daemon.
const filesFunction = "files"

func init() {
	confine.Serve(filesFunction, func(in []byte) ([]byte, error) {
		var c fileCall
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		m, err := manifest.Parse(c.Manifest)
		if err != nil {
			return nil, err
		}
		v, err := m.Check(c.Capability, c.Args)
		if err != nil {
			return nil, err
		}
		return json.Marshal(Runner{Manifest: m, Never: c.Never}.touch(c.Capability, v))
	})
}

// fileCall is what that function is told.
type fileCall struct {
	Manifest   json.RawMessage `json:"manifest"`
	Never      []string        `json:"never"`
	Capability string          `json:"capability"`
	Args       string          `json:"args"`
}

// touched is what became of a call on files.
type touched struct {
	Content *fs.Content `json:"content,omitempty"`
	Entries []fs.Entry  `json:"entries,omitempty"`
	More    bool        `json:"more,omitempty"`
	Entry   *fs.Entry   `json:"entry,omitempty"`
	Written *fs.Written `json:"written,omitempty"`
	// Refused tells that Error is a refusal, Unproven that what was written may not last.
	Refused  bool   `json:"refused,omitempty"`
	Unproven bool   `json:"unproven,omitempty"`
	Error    string `json:"error,omitempty"`
}

// file does a call on files, as the manifest's user. The daemon's own rights, if that is root, open no path of a user's: only the kernel
// knows all the ways in which a user can lead root astray.
func (r Runner) file(ctx context.Context, capability string, v manifest.Verdict) Outcome {
	user, err := confine.Lookup(r.user())
	if err != nil {
		return failed(err)
	}
	if user == nil {
		return r.touch(capability, v).outcome(v)
	}
	t, err := r.touchAs(ctx, user, capability, v)
	if err != nil {
		return untouched(capability, err)
	}
	return t.outcome(v)
}

// untouched is the outcome of a call whose process gave no answer. A look that failed has failed; what wrote may have written.
func untouched(capability string, err error) Outcome {
	if o := failed(err); o.State != wire.Unknown || capability == manifest.FSWrite {
		return o
	}
	return Outcome{State: wire.Failed, Message: err.Error()}
}

func (r Runner) touchAs(ctx context.Context, user *confine.User, capability string, v manifest.Verdict) (t touched, err error) {
	text, err := r.Manifest.Canonical()
	if err != nil {
		return t, err
	}
	args, err := json.Marshal(v.Args)
	if err != nil {
		return t, err
	}
	canonicalArgs, err := canonical.JSON(args)
	if err != nil {
		return t, err
	}
	in, err := json.Marshal(fileCall{Manifest: text, Never: r.Never, Capability: capability, Args: string(canonicalArgs)})
	if err != nil {
		return t, err
	}
	// What was begun is finished: a file that is half written helps nobody.
	out, err := command.Call(context.WithoutCancel(ctx), user, filesFunction, in, time.Duration(v.TimeoutSeconds)*time.Second)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return t, fmt.Errorf("%w: %s as %s: %w", command.ErrUnproven, capability, user.Name, err)
	}
	return t, nil
}

func (r Runner) place(capability, path string, v manifest.Verdict) fs.Place {
	return fs.Place{Path: path, Dir: fs.Dir(v.Glob), Never: r.Never, Guard: func(real string) error { return r.Manifest.LeadsTo(capability, path, real) }}
}

// touch files as this process's user.
func (r Runner) touch(capability string, v manifest.Verdict) (t touched) {
	var err error
	switch a := v.Args.(type) {
	case manifest.ReadArgs:
		limit := int64(r.Manifest.Limits.OutputBytes)
		if a.Limit > 0 {
			limit = min(limit, a.Limit)
		}
		var c fs.Content
		c, err = fs.Read(r.place(capability, a.Path, v), a.Offset, limit)
		t.Content = &c
	case manifest.PathArgs:
		p := r.place(capability, a.Path, v)
		if capability == manifest.FSList {
			t.Entries, t.More, err = fs.List(p, MostEntries)
			break
		}
		var e fs.Entry
		e, err = fs.Stat(p)
		t.Entry = &e
	case manifest.WriteArgs:
		var content []byte
		if content, err = a.Bytes(); err == nil {
			var w fs.Written
			w, err = fs.Write(r.place(capability, a.Path, v), content)
			t.Written = &w
		}
	default:
		err = fmt.Errorf("%s touches no file", capability)
	}
	if err != nil {
		return touched{Error: err.Error(), Refused: errors.Is(err, fs.ErrRefused), Unproven: errors.Is(err, fs.ErrUnproven)}
	}
	return t
}

func (t touched) outcome(v manifest.Verdict) Outcome {
	switch {
	case t.Refused:
		return Outcome{State: wire.Refused, Reason: wire.PathRefused, Message: t.Error}
	case t.Unproven:
		return Outcome{State: wire.Unknown, Message: t.Error}
	case t.Error != "":
		return Outcome{State: wire.Failed, Message: t.Error}
	case t.Content != nil:
		return succeeded(t.read)
	case t.Entry != nil:
		return succeeded(func(int) any { return entry(*t.Entry) })
	case t.Written != nil:
		a, _ := v.Args.(manifest.WriteArgs)
		return succeeded(func(int) any {
			return wire.WriteResult{Path: a.Path, Bytes: t.Written.Bytes, SHA256: t.Written.SHA256, Created: t.Written.Created}
		})
	}
	return succeeded(t.list)
}

func (t touched) read(keep int) any {
	c := t.Content
	content, encoding, used := text(c.Bytes, keep, c.More)
	return wire.ReadResult{Content: content, Encoding: encoding, Size: bounded(c.Size), Truncated: c.More || used < len(c.Bytes)}
}

func (t touched) list(keep int) any {
	out := wire.ListResult{Entries: []wire.Entry{}, Truncated: t.More}
	for _, e := range t.Entries {
		if keep -= len(e.Name) + len(e.Target) + 100; keep < 0 {
			out.Truncated = true
			break
		}
		out.Entries = append(out.Entries, entry(e))
	}
	return out
}

func entry(e fs.Entry) wire.Entry {
	return wire.Entry{Name: e.Name, Kind: e.Kind, Size: bounded(e.Size), Mode: e.Mode, ModTime: e.ModTime.UTC().Truncate(time.Second).Format(time.RFC3339), Target: e.Target}
}

// bounded to what canonical JSON can say; sparse files can claim more.
func bounded(n int64) int64 { return min(n, 1<<53-1) }
