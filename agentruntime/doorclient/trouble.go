package doorclient

import (
	"context"
	"fmt"

	"nisse.io/nisse/internal/doors"
)

// Troubles tells the broker what keeps the runtime from going on.
type Troubles struct{ plain }

// NewTroubles for the broker's door.
func NewTroubles(d Door) *Troubles { return &Troubles{plain{door: d, http: d.client()}} }

// Report what it is now. An error that wraps ErrRefused will stay.
func (t *Troubles) Report(ctx context.Context, now doors.Trouble) error {
	res, err := t.post(ctx, "/v1/trouble", now)
	if err != nil {
		return fmt.Errorf("report trouble: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("report trouble: %w", problem(res))
	}
	return nil
}
