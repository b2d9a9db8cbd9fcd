package person

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// RoomOptions describes a room to create.
type RoomOptions struct {
	Alias  string // local part, for example ops for #ops:nisse.local; none when empty
	Name   string // as shown in the list of rooms
	Invite []id.UserID
}

// CreateRoom creates a private room. Where the alias leads to a room already, that room is joined instead and whoever is
// missing is invited, so that a script may say it every time.
func (p *Person) CreateRoom(ctx context.Context, o RoomOptions) (id.RoomID, error) {
	res, err := p.client.CreateRoom(ctx, &mautrix.ReqCreateRoom{
		Preset:        "private_chat",
		RoomAliasName: o.Alias,
		Name:          o.Name,
		Invite:        o.Invite,
	})
	if err == nil {
		return res.RoomID, nil
	}
	if !errors.Is(err, mautrix.MRoomInUse) {
		return "", fmt.Errorf("create room %q: %w", o.Alias, err)
	}
	room, err := p.Join(ctx, fmt.Sprintf("#%s:%s", o.Alias, p.client.UserID.Homeserver()))
	if err != nil {
		return "", err
	}
	for _, who := range o.Invite {
		if err := p.Invite(ctx, room, who); err != nil {
			return "", err
		}
	}
	return room, nil
}

// Resolve turns a room's alias (#…) or id (!…) into its id.
func (p *Person) Resolve(ctx context.Context, room string) (id.RoomID, error) {
	switch {
	case strings.HasPrefix(room, "!"):
		return id.RoomID(room), nil
	case strings.HasPrefix(room, "#"):
		res, err := p.client.ResolveAlias(ctx, id.RoomAlias(room))
		if err != nil {
			return "", fmt.Errorf("find room %s: %w", room, err)
		}
		return res.RoomID, nil
	default:
		return "", fmt.Errorf("%q names no room: an alias begins with # and an id with an exclamation mark", room)
	}
}

// Join enters a room by alias or id; being there already is fine.
func (p *Person) Join(ctx context.Context, room string) (id.RoomID, error) {
	res, err := p.client.JoinRoom(ctx, room, nil)
	if err != nil {
		return "", fmt.Errorf("%s joins %s: %w", p.client.UserID, room, err)
	}
	return res.RoomID, nil
}

// Invite asks somebody in; whoever is invited or there already stays so.
func (p *Person) Invite(ctx context.Context, room id.RoomID, who id.UserID) error {
	var member event.MemberEventContent
	err := p.client.StateEvent(ctx, room, event.StateMember, who.String(), &member)
	switch {
	case err == nil && (member.Membership == event.MembershipJoin || member.Membership == event.MembershipInvite):
		return nil
	case err != nil && !errors.Is(err, mautrix.MNotFound):
		return fmt.Errorf("look for %s in %s: %w", who, room, err)
	}
	if _, err := p.client.InviteUser(ctx, room, &mautrix.ReqInviteUser{UserID: who}); err != nil {
		return fmt.Errorf("invite %s to %s: %w", who, room, err)
	}
	return nil
}

// Members lists who is in the room now.
func (p *Person) Members(ctx context.Context, room id.RoomID) ([]id.UserID, error) {
	res, err := p.client.JoinedMembers(ctx, room)
	if err != nil {
		return nil, fmt.Errorf("list who is in %s: %w", room, err)
	}
	members := make([]id.UserID, 0, len(res.Joined))
	for who := range res.Joined {
		members = append(members, who)
	}
	return members, nil
}
