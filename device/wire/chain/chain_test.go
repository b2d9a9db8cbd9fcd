package chain

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/internal/checkpoint"
)

// build n good rows.
func build(t testing.TB, n int) []Record {
	t.Helper()
	var all []Record
	prev := Genesis
	for i := range n {
		all = append(all, next(t, int64(i+1), prev, "a"))
		prev = all[i].Hash
	}
	return all
}

func next(t testing.TB, seq int64, prev, agent string) Record {
	t.Helper()
	body, err := Row{Seq: seq, Kind: Intent, Agent: agent, At: "1700000000000000000", Prev: prev}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Record{Body: body, Hash: Hash(body)}
}

func each(all []Record) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// sealed gives rows the leaves that a tree over other rows has.
func sealed(t testing.TB, over, rows []Record) []Record {
	t.Helper()
	rows = slices.Clone(rows)
	for i, r := range over {
		leaf, err := checkpoint.Leaf(r.Hash)
		if err != nil {
			t.Fatal(err)
		}
		rows[i].Leaf = leaf
	}
	return rows
}

func root(t testing.TB, rows []Record) tlog.Hash {
	t.Helper()
	var tree checkpoint.Tree
	for _, r := range sealed(t, rows, rows) {
		tree.Add(r.Leaf)
	}
	return tree.Now().Root
}

// anew continues rows as somebody else would, up to n.
func anew(t testing.TB, rows []Record, n int) []Record {
	t.Helper()
	rows = slices.Clone(rows)
	for len(rows) < n {
		rows = append(rows, next(t, int64(len(rows)+1), rows[len(rows)-1].Hash, "forger"))
	}
	return rows
}

func TestVerify(t *testing.T) {
	good := build(t, 5)
	seen := Expect{Rows: 5, Head: good[4].Hash}
	with := func(change func(all []Record) []Record) []Record { return change(slices.Clone(good)) }
	edit := func(r Record, hash bool) Record {
		r.Body = strings.Replace(r.Body, `"agent":"a"`, `"agent":"b"`, 1)
		if hash {
			r.Hash = Hash(r.Body)
		}
		return r
	}
	for _, c := range []struct {
		name   string
		rows   []Record
		expect []Expect
		want   checkpoint.Trouble
		row    int64
	}{
		{"whole", good, []Expect{seen}, "", 0},
		{"empty", nil, nil, "", 0},
		{"grown since", good, []Expect{{Rows: 3, Head: good[2].Hash}}, "", 0},
		{"edited", with(func(a []Record) []Record { a[2] = edit(a[2], false); return a }), nil, checkpoint.Edited, 3},
		{"edited, hash made anew", with(func(a []Record) []Record { a[2] = edit(a[2], true); return a }), nil, checkpoint.Forked, 4},
		{"newest edited, hash made anew, nobody looked before", with(func(a []Record) []Record { a[4] = edit(a[4], true); return a }), nil, "", 0},
		{"newest edited, hash made anew, seen before", with(func(a []Record) []Record { a[4] = edit(a[4], true); return a }), []Expect{seen}, checkpoint.Forked, 5},
		{"hash edited", with(func(a []Record) []Record { a[1].Hash = a[0].Hash; return a }), nil, checkpoint.Edited, 2},
		{"no JSON", with(func(a []Record) []Record { a[1].Body = "{"; return a }), nil, checkpoint.Edited, 2},
		{"same meaning, other bytes", with(func(a []Record) []Record { a[1].Body += " "; a[1].Hash = Hash(a[1].Body); return a }), nil, checkpoint.Edited, 2},
		{"row taken out", with(func(a []Record) []Record { return slices.Delete(a, 2, 3) }), []Expect{seen}, checkpoint.Gap, 3},
		{"first rows taken out", with(func(a []Record) []Record { return a[2:] }), nil, checkpoint.Gap, 1},
		{"row twice", with(func(a []Record) []Record { return slices.Insert(a, 3, a[2]) }), nil, checkpoint.Duplicate, 3},
		{"old row again", with(func(a []Record) []Record { return append(a, a[1]) }), nil, checkpoint.Duplicate, 2},
		{"sealed, whole", sealed(t, good, good), []Expect{{Rows: 4, Root: root(t, good[:4])}}, "", 0},
		{"sealed, edited, hash made anew", sealed(t, good, with(func(a []Record) []Record { a[2] = edit(a[2], true); return a })), nil, checkpoint.Edited, 3},
		{"sealed, newest edited, hash made anew", sealed(t, good, with(func(a []Record) []Record { a[4] = edit(a[4], true); return a })), nil, checkpoint.Edited, 5},
		{"sealed, written anew from a row on", sealed(t, good, anew(t, good[:2], 5)), nil, checkpoint.Forked, 3},
		{"written anew between checkpoints", anew(t, good[:3], 5), []Expect{{Rows: 2, Root: root(t, good[:2])}, {Rows: 5, Root: root(t, good)}}, checkpoint.Forked, 5},
		{"cut off below a checkpoint", good[:3], []Expect{{Rows: 2, Root: root(t, good[:2])}, {Rows: 5, Root: root(t, good)}}, checkpoint.Truncated, 4},
		{"two writers", append(with(func(a []Record) []Record { return a[:4] }), next(t, 4, good[2].Hash, "other"), good[4]), nil, checkpoint.Forked, 4},
		{"two writers, one row kept", append(with(func(a []Record) []Record { return a[:3] }), next(t, 4, good[2].Hash, "other"), good[4]), nil, checkpoint.Forked, 5},
		{"rows exchanged", with(func(a []Record) []Record { a[1], a[2] = a[2], a[1]; return a }), nil, checkpoint.Gap, 2},
		{"newest cut off", good[:4], []Expect{seen}, checkpoint.Truncated, 5},
		{"all cut off", nil, []Expect{seen}, checkpoint.Truncated, 1},
		{"cut off and written on", append(slices.Clone(good[:4]), next(t, 5, good[3].Hash, "other"), next(t, 6, "x", "other")), []Expect{seen}, checkpoint.Forked, 5},
		{"written anew from the start", func() []Record {
			var all []Record
			prev := Genesis
			for i := range 5 {
				all = append(all, next(t, int64(i+1), prev, "forger"))
				prev = all[i].Hash
			}
			return all
		}(), []Expect{{Rows: 2, Head: good[1].Hash}}, checkpoint.Forked, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			end, err := Verify(each(c.rows), c.expect...)
			var f *Finding
			if c.want == "" {
				if err != nil || end.Rows != int64(len(c.rows)) {
					t.Errorf("got %+v, %v", end, err)
				}
				return
			}
			if !errors.As(err, &f) || f.Trouble != c.want || f.Row != c.row {
				t.Errorf("got %v, want %s at row %d", err, c.want, c.row)
			}
		})
	}
	broken := errors.New("disk")
	if _, err := Verify(func(yield func(Record, error) bool) { yield(Record{}, broken) }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// Every field is under the hash: one that is not could be changed unseen.
func TestHashCoversEveryField(t *testing.T) {
	base := Row{Seq: 1, At: "1", Kind: Intent, Deed: "d", Agent: "a", CorrelationID: "c", Capability: "exec", Args: "{}", ArgsHash: "h", CallHash: "ch",
		Gate: "g", Step: 1, Attempt: 1, Approvers: []string{"lucas"}, State: "Succeeded", Reason: "r", ResultHash: "rh", Prev: "p"}
	seen := map[string]string{}
	for name, change := range map[string]func(*Row){
		"nothing": func(*Row) {}, "seq": func(r *Row) { r.Seq++ }, "at": func(r *Row) { r.At = "2" }, "kind": func(r *Row) { r.Kind = Outcome },
		"deed": func(r *Row) { r.Deed += "x" }, "agent": func(r *Row) { r.Agent += "x" }, "correlationID": func(r *Row) { r.CorrelationID += "x" },
		"capability": func(r *Row) { r.Capability += "x" }, "args": func(r *Row) { r.Args += "x" }, "argsHash": func(r *Row) { r.ArgsHash += "x" },
		"callHash": func(r *Row) { r.CallHash += "x" }, "gate": func(r *Row) { r.Gate += "x" }, "step": func(r *Row) { r.Step++ }, "attempt": func(r *Row) { r.Attempt++ },
		"approvers": func(r *Row) { r.Approvers = nil }, "state": func(r *Row) { r.State += "x" }, "reason": func(r *Row) { r.Reason += "x" },
		"resultHash": func(r *Row) { r.ResultHash += "x" }, "prev": func(r *Row) { r.Prev += "x" },
	} {
		r := base
		change(&r)
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[Hash(body)]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[Hash(body)] = name
		if back, err := Decode(body); err != nil || fmt.Sprint(back.Seq, back.Approvers) != fmt.Sprint(r.Seq, r.Approvers) {
			t.Errorf("%s: %+v, %v", name, back, err)
		}
	}
}
