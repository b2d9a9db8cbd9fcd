package checkpoint

import "fmt"

// Trouble is what is wrong with an audit.
type Trouble string

const (
	// Edited: a row is not what it was when it was written.
	Edited Trouble = "Edited"
	// Gap: rows are missing in the middle.
	Gap Trouble = "Gap"
	// Duplicate: a row comes a second time.
	Duplicate Trouble = "Duplicate"
	// Forked: a row does not continue the row before it, or the audit is not the one that was seen before.
	Forked Trouble = "Forked"
	// Truncated: the newest rows are missing.
	Truncated Trouble = "Truncated"
)

// Finding names the first row that is wrong.
type Finding struct {
	Trouble Trouble `json:"trouble"`
	Row     int64   `json:"row"`
	Detail  string  `json:"detail"`
}

func (f *Finding) Error() string {
	return fmt.Sprintf("audit chain broken at row %d: %s: %s", f.Row, f.Trouble, f.Detail)
}
