package controllertest

import (
	"encoding/json"
	"strings"
)

// Heard returns the events that were sent since it was last asked, each as type, reason and note.
func (w *World) Heard() []string {
	var all []string
	for {
		select {
		case e := <-w.Events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// Told returns the reasons of the events that were sent since it was last asked.
func (w *World) Told() []string {
	var all []string
	for _, e := range w.Heard() {
		all = append(all, strings.Fields(e)[1])
	}
	return all
}

// Logged returns the fields of every line about an event, without those that all lines have.
func (w *World) Logged(event string) []map[string]any {
	w.T.Helper()
	var found []map[string]any
	for line := range strings.Lines(w.LogTo.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			w.T.Fatalf("%v: %s", err, line)
		}
		if fields["event"] != event {
			continue
		}
		for _, common := range []string{"event", "ts", "level", "component"} {
			if fields[common] == nil {
				w.T.Errorf("no %s in %s", common, line)
			}
			delete(fields, common)
		}
		found = append(found, fields)
	}
	return found
}
