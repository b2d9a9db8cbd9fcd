package chain

import (
	"fmt"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/internal/checkpoint"
)

// Finding names the first row that is wrong, and what is wrong with it.
type Finding = checkpoint.Finding

// Record is a stored row. Hash is the one stored beside it, and Leaf what the device's tree has for it; empty and zero where there is none.
type Record struct {
	Body string
	Hash string
	Leaf tlog.Hash
}

// Expect is what was seen of the chain before, elsewhere: so many rows, the last with this hash, and all of them with this root. What is zero
// expects nothing.
type Expect struct {
	// Line of the audit that it was seen of; it is for whoever gives the rows to compare.
	Line int64
	Rows int64
	Head string
	Root tlog.Hash
}

// Verify a whole chain from its first row on and return its end. The error is a *Finding, or what rows yielded. Where a row is met a second time, the
// rows are read again.
func Verify(rows iter.Seq2[Record, error], expect ...Expect) (end Expect, err error) {
	v := verifier{end: Expect{Head: Genesis}, expect: map[int64][]Expect{}}
	for _, e := range expect {
		v.expect[e.Rows] = append(v.expect[e.Rows], e)
	}
	var finding *Finding
	for rec, err := range rows {
		if err != nil {
			return v.now(), err
		}
		if finding, err = v.next(rec); err != nil {
			return v.now(), err
		}
		if finding != nil {
			break
		}
	}
	if finding == nil {
		finding = v.over()
	}
	if finding == nil {
		return v.now(), nil
	}
	if v.again == "" {
		return v.now(), finding
	}
	for rec, err := range rows {
		if err != nil {
			return v.now(), err
		}
		if r, err := Decode(rec.Body); err != nil || r.Seq >= finding.Row {
			if err == nil && rec.Body == v.again {
				finding = &Finding{Trouble: checkpoint.Duplicate, Row: finding.Row, Detail: fmt.Sprintf("it comes again after row %d", v.end.Rows)}
			}
			break
		}
	}
	return v.now(), finding
}

// verifier of rows as they come.
type verifier struct {
	end    Expect
	tree   checkpoint.Tree
	good   int64 // rows of the last expectation that was met
	expect map[int64][]Expect
	// altered is set when the last row is not the one that the device's tree was made of. The row after it tells what that means.
	altered *Record
	// again is a row that has a number which was there before.
	again string
}

func (v *verifier) now() Expect {
	end := v.end
	end.Root = v.tree.Now().Root
	return end
}

func (v *verifier) next(rec Record) (*Finding, error) {
	want := v.end.Rows + 1
	r, err := Decode(rec.Body)
	hash := Hash(rec.Body)
	found := func(t checkpoint.Trouble, row int64, format string, args ...any) (*Finding, error) {
		return &Finding{Trouble: t, Row: row, Detail: fmt.Sprintf(format, args...)}, nil
	}
	if v.altered != nil && err == nil && r.Prev == v.end.Head {
		return found(checkpoint.Forked, v.end.Rows, "it is another row than the one the device wrote, and the rows after it continue it: the chain was written anew from there")
	}
	switch {
	case v.altered != nil:
		return v.over(), nil
	case err != nil:
		return found(checkpoint.Edited, want, "%s", err)
	case r.Seq < want:
		v.again = rec.Body
		return found(checkpoint.Forked, r.Seq, "a second row %d comes after row %d", r.Seq, v.end.Rows)
	case r.Seq > want:
		return found(checkpoint.Gap, want, "after row %d comes row %d", v.end.Rows, r.Seq)
	case rec.Hash != "" && rec.Hash != hash:
		return found(checkpoint.Edited, want, "its content does not have the hash stored with it")
	case r.Prev != v.end.Head:
		return found(checkpoint.Forked, want, "it does not continue row %d as that stands: that one was rewritten, or two writers forked the chain", v.end.Rows)
	}
	leaf, err := checkpoint.Leaf(hash)
	if err != nil {
		return nil, err
	}
	v.tree.Add(leaf)
	v.end = Expect{Rows: want, Head: hash}
	if (rec.Leaf != tlog.Hash{}) && rec.Leaf != leaf {
		v.altered = &rec
		return nil, nil
	}
	for _, e := range v.expect[want] {
		if e.Head != "" && e.Head != hash {
			return found(checkpoint.Forked, want, "it is another row than the one seen before: the chain was rewritten at or before it")
		}
		if (e.Root != tlog.Hash{}) && e.Root != v.tree.Now().Root {
			return found(checkpoint.Forked, want, "rows %d to %d are not those that a checkpoint was made of: the chain was rewritten among them", v.good+1, want)
		}
		v.good = want
	}
	return nil, nil
}

// over is called when no more rows come.
func (v *verifier) over() *Finding {
	if v.altered != nil {
		return &Finding{Trouble: checkpoint.Edited, Row: v.end.Rows, Detail: "its content is not what the device wrote; the hash stored with it was made anew"}
	}
	most := int64(0)
	for rows := range v.expect {
		most = max(most, rows)
	}
	if most > v.end.Rows {
		return &Finding{Trouble: checkpoint.Truncated, Row: v.end.Rows + 1, Detail: fmt.Sprintf("%d rows were seen before, %d are left", most, v.end.Rows)}
	}
	return nil
}
