package store

import (
	"errors"
	"testing"
	"time"
)

func TestSpend(t *testing.T) {
	type spend struct {
		agent string
		after time.Duration
		bytes int64
		// until when it is refused, after the beginning; 0 when it is not.
		until time.Duration
	}
	const all, mib = DayBytes, 1 << 20
	for name, spends := range map[string][]spend{
		"nothing yet":               {{"ops", 0, all, 0}},
		"one byte too many":         {{"ops", 0, all, 0}, {"ops", time.Minute, 1, 24 * time.Hour}},
		"others have their own":     {{"ops", 0, all, 0}, {"dev", 0, all, 0}},
		"just before the day ends":  {{"ops", 0, all, 0}, {"ops", 24*time.Hour - time.Second, 1, 24 * time.Hour}},
		"when the day has ended":    {{"ops", 0, all, 0}, {"ops", 24 * time.Hour, all, 0}, {"ops", 25 * time.Hour, 1, 48 * time.Hour}},
		"the hour that makes room":  {{"ops", 0, mib, 0}, {"ops", 5 * time.Hour, all - mib, 0}, {"ops", 6 * time.Hour, mib, 24 * time.Hour}, {"ops", 6 * time.Hour, 2 * mib, 29 * time.Hour}},
		"and it goes on then":       {{"ops", 0, mib, 0}, {"ops", 5 * time.Hour, all - mib, 0}, {"ops", 24 * time.Hour, mib, 0}, {"ops", 24 * time.Hour, 1, 29 * time.Hour}},
		"what is refused is free":   {{"ops", 0, all - 1, 0}, {"ops", 0, 2, 24 * time.Hour}, {"ops", 0, 1, 0}},
		"a clock that was set back": {{"ops", 400 * 24 * time.Hour, all, 0}, {"ops", 0, all, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			begin := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			for n, do := range spends {
				s := open(t, dir) // a restart gives nobody a new day
				err := s.Update(t.Context(), func(tx *Tx) error { return tx.Spend(do.agent, do.bytes, begin.Add(do.after)) })
				var over *OverBudget
				switch {
				case do.until == 0 && err != nil:
					t.Errorf("spend %d: %v", n, err)
				case do.until != 0 && !errors.As(err, &over):
					t.Errorf("spend %d: %v, want to be refused", n, err)
				case do.until != 0 && !over.Until.Equal(begin.Add(do.until)):
					t.Errorf("spend %d is refused until %s, want %s", n, over.Until, begin.Add(do.until))
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
