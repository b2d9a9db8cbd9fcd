package chain

import (
	"fmt"
	"iter"
)

// Trouble is what is wrong with a chain.
type Trouble string

const (
	// Edited: a row is not what its hash was made of.
	Edited Trouble = "Edited"
	// Gap: rows are missing in the middle.
	Gap Trouble = "Gap"
	// Fork: a row comes twice, or does not continue the row before it, or the chain is not the one that was seen before.
	Fork Trouble = "Fork"
	// Truncated: the newest rows are missing.
	Truncated Trouble = "Truncated"
)

// Finding names the first row that is wrong.
type Finding struct {
	Trouble Trouble
	Row     int64
	Detail  string
}

func (f *Finding) Error() string {
	return fmt.Sprintf("audit chain broken at row %d: %s: %s", f.Row, f.Trouble, f.Detail)
}

// Record is a stored row. Hash is the one stored beside it, empty where none is.
type Record struct {
	Body string
	Hash string
}

// Expect is what was seen of the chain before, elsewhere: so many rows, the last with this hash. Zero expects nothing.
type Expect struct {
	Rows int64
	Head string
}

// Verify a whole chain from its first row on and return its end. The error is a *Finding, or what rows yielded.
func Verify(rows iter.Seq2[Record, error], expect ...Expect) (end Expect, err error) {
	end = Expect{Head: Genesis}
	for rec, err := range rows {
		if err != nil {
			return end, err
		}
		want := end.Rows + 1
		r, err := Decode(rec.Body)
		hash := Hash(rec.Body)
		switch {
		case err != nil:
			return end, &Finding{Edited, want, err.Error()}
		case r.Seq < want:
			return end, &Finding{Fork, r.Seq, fmt.Sprintf("a second row %d comes after row %d", r.Seq, end.Rows)}
		case r.Seq > want:
			return end, &Finding{Gap, want, fmt.Sprintf("after row %d comes row %d", end.Rows, r.Seq)}
		case rec.Hash != "" && rec.Hash != hash:
			return end, &Finding{Edited, want, "its content does not have the hash stored with it"}
		case r.Prev != end.Head:
			return end, &Finding{Fork, want, fmt.Sprintf("it does not continue row %d as that stands: that one was rewritten, or two writers forked the chain", end.Rows)}
		}
		end = Expect{Rows: want, Head: hash}
		for _, e := range expect {
			if e.Rows == want && e.Head != hash {
				return end, &Finding{Fork, want, "it is another row than the one seen before: the chain was rewritten at or before it"}
			}
		}
	}
	for _, e := range expect {
		if e.Rows > end.Rows {
			return end, &Finding{Truncated, end.Rows + 1, fmt.Sprintf("%d rows were seen before, %d are left", e.Rows, end.Rows)}
		}
	}
	return end, nil
}
