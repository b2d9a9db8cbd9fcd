// Package clock decides what a device believes about time. A machine may start in 1970, or be set back; a request is only as fresh as
// the clock that judges it.
package clock

import (
	"context"
	"fmt"
	"time"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
)

// built is before any nisse-device was: 2026-01-01. No clock before it is believed.
const built = 1767225600

const (
	metaFloor = "clock.floor"
	metaTold  = "clock.told"
)

// Clock is what the device has seen of time, in Unix seconds.
type Clock struct {
	// Floor is the latest time that a trusted request bore when it agreed with this machine's clock. The clock is believed from there on.
	Floor int64
	// Told is the latest time that the device has named when it said that it had not seen a deed. Nothing that expired by then may run,
	// whatever the clock says later: somebody may rely on it.
	Told int64
}

// Load what a store remembers.
func Load(ctx context.Context, q store.Querier) (Clock, error) {
	floor, err := store.MetaInt(ctx, q, metaFloor)
	if err != nil {
		return Clock{}, err
	}
	told, err := store.MetaInt(ctx, q, metaTold)
	return Clock{Floor: floor, Told: told}, err
}

// Save into a store.
func (c Clock) Save(ctx context.Context, q store.Querier) error {
	if err := store.SetMetaInt(ctx, q, metaFloor, c.Floor); err != nil {
		return err
	}
	return store.SetMetaInt(ctx, q, metaTold, c.Told)
}

// Believed tells whether now is not before what the device knows to have been.
func (c Clock) Believed(now int64) bool { return now >= max(c.Floor, built)-wire.SkewSeconds }

// Problem of the clock for people, empty when it is believed.
func (c Clock) Problem(now int64) string {
	if c.Believed(now) {
		return ""
	}
	return fmt.Sprintf("the clock says %s, which is before %s when something was done already; set it, and until then nothing that needs approval runs", utc(now), utc(max(c.Floor, built)))
}

func utc(t int64) string { return time.Unix(t, 0).UTC().Format(time.RFC3339) }

// Latest is now, or a later time that the device has told.
func (c Clock) Latest(now int64) int64 { return max(now, c.Told) }

// Known time: it is not earlier than this, whatever the machine's clock says.
func (c Clock) Known(now int64) int64 { return max(c.Latest(now), c.Floor) }

// Judge the times of a request or a query; an empty reason is a pass.
func (c Clock) Judge(now, at, expiresAt int64) (wire.Reason, string) {
	switch {
	case c.Latest(now) >= expiresAt:
		return wire.Expired, fmt.Sprintf("it expired at %s, and here it is %s", utc(expiresAt), utc(c.Latest(now)))
	case !c.Believed(now):
		return wire.NotYet, c.Problem(now)
	case at > now+wire.SkewSeconds:
		return wire.NotYet, fmt.Sprintf("it is dated %s, and here it is %s; one of the two clocks is wrong", utc(at), utc(now))
	case expiresAt-at > wire.MaxWindowSeconds:
		return wire.WindowTooLong, fmt.Sprintf("it may begin within %d s, at most %d are allowed", expiresAt-at, int64(wire.MaxWindowSeconds))
	}
	return "", ""
}

// Accept a request dated at: the floor rises to it when this machine's clock agrees within the skew, and only then, so that neither a
// clock that ran ahead nor a request from the future can lock the device.
func (c Clock) Accept(now, at int64) Clock {
	if now-at <= wire.SkewSeconds && at-now <= wire.SkewSeconds {
		c.Floor = max(c.Floor, at)
	}
	return c
}

// Tell that now was named to somebody.
func (c Clock) Tell(now int64) Clock {
	c.Told = max(c.Told, now)
	return c
}
