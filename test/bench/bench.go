// Package bench measures what docs/performance.md publishes. What it measures with is here and tested like anything else; the
// measuring itself has the build tag bench, because a shared machine's clock must not fail a test run. See hack/bench.sh.
package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Percentile by nearest rank; zero of nothing.
func Percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	rank := int(p/100*float64(len(sorted)) + 0.9999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Span is a named part of a way, measured many times.
type Span struct {
	Name string
	Took []time.Duration
}

// Ways adds up equally named marks of many walks into spans, each from one mark to the next, and the whole way at the end.
type Ways struct {
	spans []Span
}

// Mark is a moment on a way, and the name of the span that ends there.
type Mark struct {
	Span string
	At   time.Time
}

// Add one walk. It must pass the same marks as those before it, in an order in which none lies before the last.
func (w *Ways) Add(start time.Time, marks []Mark) error {
	if w.spans == nil {
		for _, m := range marks {
			w.spans = append(w.spans, Span{Name: m.Span})
		}
		w.spans = append(w.spans, Span{Name: "whole way"})
	}
	if len(marks) != len(w.spans)-1 {
		return fmt.Errorf("a walk of %d marks among walks of %d", len(marks), len(w.spans)-1)
	}
	last := start
	for i, m := range marks {
		if m.Span != w.spans[i].Name {
			return fmt.Errorf("mark %d is %q, was %q", i, m.Span, w.spans[i].Name)
		}
		if m.At.IsZero() {
			return fmt.Errorf("%q was not seen", m.Span)
		}
		w.spans[i].Took = append(w.spans[i].Took, m.At.Sub(last))
		last = m.At
	}
	w.spans[len(w.spans)-1].Took = append(w.spans[len(w.spans)-1].Took, last.Sub(start))
	return nil
}

// Print a table in Markdown.
func (w *Ways) Print(out io.Writer) error {
	rows := [][]string{{"up to", "p50 ms", "p90 ms", "p99 ms", "worst ms"}}
	for _, s := range w.spans {
		rows = append(rows, []string{s.Name, ms(Percentile(s.Took, 50)), ms(Percentile(s.Took, 90)), ms(Percentile(s.Took, 99)), ms(Percentile(s.Took, 100))})
	}
	return Table(out, rows)
}

// Whole is a percentile of the whole way.
func (w *Ways) Whole(p float64) time.Duration {
	if len(w.spans) == 0 {
		return 0
	}
	return Percentile(w.spans[len(w.spans)-1].Took, p)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

// Table prints rows, the first of which is the head, in Markdown.
func Table(out io.Writer, rows [][]string) error {
	for i, r := range rows {
		if _, err := fmt.Fprintf(out, "| %s |\n", strings.Join(r, " | ")); err != nil {
			return err
		}
		if i == 0 {
			if _, err := fmt.Fprintf(out, "|%s\n", strings.Repeat("---|", len(r))); err != nil {
				return err
			}
		}
	}
	return nil
}
