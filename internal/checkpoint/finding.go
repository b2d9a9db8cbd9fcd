package checkpoint

import (
	"fmt"

	"nisse.io/nisse/internal/sanitize"
)

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

// maxDetail of a finding, in characters. It is in a reply, in a ConfigMap and in a condition, and may quote what somebody wrote into the audit.
const maxDetail = 500

// Bounded finding: as long as may be, and of a trouble that there is. It may be a hostile device's.
func (f Finding) Bounded() *Finding {
	switch f.Trouble {
	case Edited, Gap, Duplicate, Forked, Truncated:
	default:
		f.Detail = string(f.Trouble) + ": " + f.Detail
		f.Trouble = Forked
	}
	f.Row, f.Detail = max(f.Row, 0), sanitize.Line(f.Detail, maxDetail)
	return &f
}

func (f *Finding) Error() string {
	return fmt.Sprintf("audit chain broken at row %d: %s: %s", f.Row, f.Trouble, f.Detail)
}
