package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// roomKeeper sees to it that the account is in its rooms, from what the syncs tell.
type roomKeeper struct {
	*Account
	dirty bool      // something about membership changed
	done  bool      // all rooms are as they should be
	next  time.Time // not before then, unless dirty
}

func (k *roomKeeper) settled() bool { return k.done }

// recheck what was known: the homeserver was away.
func (k *roomKeeper) recheck() { k.dirty = true }

// heard looks for changes of membership, encryption and rights.
func (k *roomKeeper) heard(res *mautrix.RespSync, batches []batch) {
	for room := range res.Rooms.Leave {
		k.setReady(room, false)
		k.dirty = true
	}
	if len(res.Rooms.Invite) > 0 {
		k.dirty = true
	}
	for _, b := range batches {
		for _, e := range b.events {
			switch {
			case e.StateKey == nil:
			case e.Type.Type == event.StateEncryption.Type || e.Type.Type == event.StatePowerLevels.Type:
				k.setReady(b.room, false)
				k.dirty = true
			case e.Type.Type == event.StateMember.Type && (*e.StateKey == k.Approvals.String() || *e.StateKey == k.UserID.String()):
				k.dirty = true
			}
		}
	}
}

// keep does what is to be done about the rooms. What only people can mend is reported, and tried again later.
func (k *roomKeeper) keep(ctx context.Context) error {
	if !k.dirty && (k.done || time.Now().Before(k.next)) {
		return nil
	}
	if k.Desk == nil {
		return k.keepAll(ctx)
	}
	room, err := k.resolve(ctx)
	if err == nil {
		err = k.enter(ctx, room)
	}
	var refused *roomError
	switch {
	case errors.As(err, &refused):
		k.report(State{Reason: refused.reason, Message: refused.message, RoomID: room.String()})
		k.dirty, k.done, k.next = false, false, time.Now().Add(k.Timing.Retry)
		return nil
	case err != nil:
		return err
	}
	hint, err := k.invite(ctx, room)
	if err != nil {
		return err
	}
	k.report(State{Connected: true, Reason: Connected, Message: hint, RoomID: room.String()})
	k.dirty, k.done, k.next = false, hint == "", time.Now().Add(k.Timing.Retry)
	return nil
}

// keepAll is for the approvals account, which belongs in every agent's room.
func (k *roomKeeper) keepAll(ctx context.Context) error {
	rooms, err := k.Store.Rooms(ctx)
	if err != nil {
		return err
	}
	k.dirty, k.done, k.next = false, true, time.Now().Add(k.Timing.Retry)
	for _, room := range rooms {
		if k.isReady(id.RoomID(room)) {
			continue
		}
		var refused *roomError
		switch err := k.enter(ctx, id.RoomID(room)); {
		case errors.As(err, &refused):
			k.done = false
			k.log.WarnContext(ctx, "room.refused", "room", room, "reason", refused.reason)
		case answered(err):
			k.done = false
			k.log.WarnContext(ctx, "room.failed", "room", room, "error", err.Error())
		case err != nil:
			return err
		}
	}
	k.report(State{Connected: true, Reason: Connected})
	return nil
}

// roomError is a reason why the account is not in its room that only people can mend.
type roomError struct{ reason, message string }

func (e *roomError) Error() string { return e.message }

// resolve finds the agent's room. An alias may lead elsewhere one day; when it leads nowhere, the room it led to last counts.
func (a *Account) resolve(ctx context.Context) (id.RoomID, error) {
	kept, err := a.Store.Room(ctx, a.Agent, a.Wanted)
	if err != nil {
		return "", err
	}
	room := id.RoomID(kept)
	if strings.HasPrefix(a.Wanted, "!") {
		room = id.RoomID(a.Wanted)
	} else {
		found, err := a.home.alias(ctx, a.Wanted)
		switch {
		case err == nil:
			room = found
		case away(err) || errors.Is(err, mautrix.MUnknownToken):
			a.setRoom(room)
			return room, fmt.Errorf("look up %s: %w", a.Wanted, err)
		case room == "":
			return "", &roomError{RoomNotFound, fmt.Sprintf("%s leads to no room (%s). Create the room with this alias and invite %s.", a.Wanted, explain(err), a.UserID)}
		}
	}
	a.setRoom(room)
	if room.String() != kept {
		if err := a.Store.SetRoom(ctx, a.Agent, a.Wanted, room.String()); err != nil {
			return "", err
		}
	}
	return room, nil
}

func (a *Account) setRoom(room id.RoomID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room = room
}

// admitted tells whether the account is in the room and may write there.
func (a *Account) admitted(ctx context.Context, room id.RoomID) (in bool, err error) {
	var refused *roomError
	switch err := a.enter(ctx, room); {
	case err == nil:
		return true, nil
	case errors.As(err, &refused):
		return false, nil
	case answered(err): // about this room, for all that is known
		a.log.WarnContext(ctx, "room.failed", "room", room.String(), "error", err.Error())
		a.setReady(room, false)
		return false, nil
	default:
		return false, err
	}
}

// enter makes sure that the account is in the room and may write there: joined, the room not encrypted, and with the power that messages want.
func (a *Account) enter(ctx context.Context, room id.RoomID) error {
	joined, err := a.home.joined(ctx)
	if err != nil {
		return fmt.Errorf("list joined rooms: %w", err)
	}
	if !slices.Contains(joined, room) {
		err := a.home.join(ctx, room.String())
		if err != nil && !away(err) && strings.HasPrefix(a.Wanted, "#") {
			// A public room of another server can be joined by its alias only.
			err = a.home.join(ctx, a.Wanted)
		}
		switch {
		case err == nil:
			a.log.InfoContext(ctx, "room.joined", "room", room.String())
		case away(err) || errors.Is(err, mautrix.MUnknownToken):
			return fmt.Errorf("join %s: %w", room, err)
		default:
			a.setReady(room, false)
			return &roomError{RoomNotFound, fmt.Sprintf("%s is not in the room and cannot join it (%s). Invite %s.", a.UserID, explain(err), a.UserID)}
		}
	}
	switch _, err := a.home.encryption(ctx, room); {
	case errors.Is(err, mautrix.MNotFound):
	case err == nil:
		a.setReady(room, false)
		return &roomError{RoomEncrypted, "The room is encrypted, which this version cannot read. Use a room without encryption."}
	default:
		return fmt.Errorf("ask whether %s is encrypted: %w", room, err)
	}
	switch lack, err := a.powerless(ctx, room, a.UserID); {
	case err != nil:
		return err
	case lack != "":
		a.setReady(room, false)
		return &roomError{RoomReadOnly, lack}
	}
	a.setReady(room, true)
	return nil
}

// powerless tells what keeps a member of the room from writing there; nothing, for most.
func (a *Account) powerless(ctx context.Context, room id.RoomID, user id.UserID) (lack string, err error) {
	has, wants, err := a.home.power(ctx, room, user)
	if err != nil {
		return "", fmt.Errorf("ask whether %s may write in %s: %w", user, room, err)
	}
	if has >= wants {
		return "", nil
	}
	return fmt.Sprintf("%s may not write in the room: its power level is %d, and messages want %d. Give it that in the room's settings, under roles and permissions.", user, has, wants), nil
}

// invite asks the approvals account in, if this account may. The hint tells people what is left for them to do.
func (a *Account) invite(ctx context.Context, room id.RoomID) (hint string, err error) {
	member, err := a.home.membership(ctx, room, a.Approvals)
	switch {
	case err == nil && (member == event.MembershipJoin || member == event.MembershipInvite):
		lack, err := a.powerless(ctx, room, a.Approvals)
		if err != nil || lack == "" {
			return "", err
		}
		return "Plans cannot be shown: " + lack, nil
	case err != nil && !errors.Is(err, mautrix.MNotFound):
		return "", fmt.Errorf("look for %s: %w", a.Approvals, err)
	}
	err = a.home.invite(ctx, room, a.Approvals)
	switch {
	case err == nil:
		return "", nil
	case away(err) || errors.Is(err, mautrix.MUnknownToken):
		return "", fmt.Errorf("invite %s: %w", a.Approvals, err)
	}
	return fmt.Sprintf("Plans cannot be shown: %s is not in the room, and %s may not invite it (%s). Invite %s.", a.Approvals, a.UserID, explain(err), a.Approvals), nil
}
