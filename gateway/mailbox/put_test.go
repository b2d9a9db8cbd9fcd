package mailbox

import (
	"strings"
	"testing"

	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/doors"
)

// A line of progress each second, day and night, as long as progress shows it, is honest work and within the budget.
func TestALineASecondIsWithinTheBudget(t *testing.T) {
	line := doors.Outgoing{Kind: doors.Progress, Text: strings.Repeat("x", 300)}
	if day := 24 * 60 * 60 * cost(line); day > store.DayBytes {
		t.Errorf("a day of it costs %d, of %d", day, store.DayBytes)
	}
}
