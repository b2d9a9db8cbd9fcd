// Package clock tells times to people.
package clock

import "time"

// Tell a time as somebody reads it at another: the hour, and the day where it is another one. The zone is the time's own.
func Tell(at, read time.Time) string {
	read = read.In(at.Location())
	switch {
	case at.Year() != read.Year():
		return at.Format("15:04 MST on 2 January 2006")
	case at.YearDay() != read.YearDay():
		return at.Format("15:04 MST on 2 January")
	}
	return at.Format("15:04 MST")
}
