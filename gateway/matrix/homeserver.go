package matrix

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
	"maunium.net/go/mautrix/synapseadmin"
)

// homeserver is asked here and nowhere else. A 429 is waited out. An answer that lacks what was asked for is no answer, whatever its
// status: what stands before a homeserver says {} or null of its own, and to believe that would lose messages and how far was read.
type homeserver struct{ client *mautrix.Client }

// lackError says that an answer lacks what was asked for. It counts as none.
type lackError struct{ field string }

func (e *lackError) Error() string {
	return "its answer has no " + e.field + ", so it counts as none; see what stands before the homeserver (--homeserver-url)"
}

// ask for as long as it takes, and see that the answer has a field.
func ask[T any](ctx context.Context, field string, has func(*T) bool, request func() (*T, error)) (*T, error) {
	var res *T
	err := patiently(ctx, func() (err error) { res, err = request(); return err })
	switch {
	case err != nil:
		return nil, err
	case res == nil || !has(res):
		return nil, &lackError{field}
	}
	return res, nil
}

func (h homeserver) whoami(ctx context.Context) (id.UserID, error) {
	res, err := ask(ctx, "user_id", func(r *mautrix.RespWhoami) bool { return r.UserID != "" },
		func() (*mautrix.RespWhoami, error) { return h.client.Whoami(ctx) })
	if err != nil {
		return "", err
	}
	return res.UserID, nil
}

func (h homeserver) login(ctx context.Context, req *mautrix.ReqLogin) (*mautrix.RespLogin, error) {
	return ask(ctx, "user_id, access_token and device_id", func(r *mautrix.RespLogin) bool { return r.UserID != "" && r.AccessToken != "" && r.DeviceID != "" },
		func() (*mautrix.RespLogin, error) { return h.client.Login(ctx, req) })
}

// register an account with the shared secret. Who believes too early that one was made takes all that it can read for history.
func (h homeserver) register(ctx context.Context, secret, local, password string) error {
	admin := &synapseadmin.Client{Client: h.client}
	nonce, err := ask(ctx, "nonce", func(n *string) bool { return *n != "" }, func() (*string, error) {
		n, err := admin.GetRegisterNonce(ctx)
		return &n, err
	})
	if err != nil {
		return err
	}
	_, err = ask(ctx, "user_id", func(r *mautrix.RespRegister) bool { return r.UserID != "" }, func() (*mautrix.RespRegister, error) {
		return admin.SharedSecretRegister(ctx, secret, synapseadmin.ReqSharedSecretRegister{Username: local, Password: password, InhibitLogin: true, Nonce: *nonce})
	})
	return err
}

func (h homeserver) sync(ctx context.Context, req mautrix.ReqSync) (*mautrix.RespSync, error) {
	res, err := ask(ctx, "next_batch", func(r *mautrix.RespSync) bool { return r.NextBatch != "" },
		func() (*mautrix.RespSync, error) { return h.client.FullSyncRequest(ctx, req) })
	if err != nil {
		return nil, err
	}
	for room, joined := range res.Rooms.Join {
		if joined == nil {
			delete(res.Rooms.Join, room)
			continue
		}
		joined.Timeline.Events = whole(joined.Timeline.Events)
	}
	return res, nil
}

// page of a room's history, going back. An empty one that says where it starts is the end of it.
func (h homeserver) page(ctx context.Context, room id.RoomID, from string, size int) (*mautrix.RespMessages, error) {
	res, err := ask(ctx, "start and chunk", func(r *mautrix.RespMessages) bool { return r.Start != "" && r.Chunk != nil },
		func() (*mautrix.RespMessages, error) {
			return h.client.Messages(ctx, room, from, "", mautrix.DirectionBackward, nil, size)
		})
	if err != nil {
		return nil, err
	}
	res.Chunk = whole(res.Chunk)
	return res, nil
}

// whole leaves out what is no event: null, and what has no ID.
func whole(events []*event.Event) []*event.Event {
	return slices.DeleteFunc(events, func(e *event.Event) bool { return e == nil || e.ID == "" })
}

func (h homeserver) send(ctx context.Context, room id.RoomID, body map[string]any, transaction string) (id.EventID, error) {
	res, err := ask(ctx, "event_id", func(r *mautrix.RespSendEvent) bool { return r.EventID != "" }, func() (*mautrix.RespSendEvent, error) {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		return h.client.SendMessageEvent(ctx, room, event.EventMessage, body, mautrix.ReqSendEvent{TransactionID: transaction})
	})
	if err != nil {
		return "", err
	}
	return res.EventID, nil
}

// sendTimeout of one request. Beyond it nobody knows whether the message was taken, so it is looked for.
const sendTimeout = time.Minute

func (h homeserver) alias(ctx context.Context, alias string) (id.RoomID, error) {
	res, err := ask(ctx, "room_id", func(r *mautrix.RespAliasResolve) bool { return r.RoomID != "" },
		func() (*mautrix.RespAliasResolve, error) { return h.client.ResolveAlias(ctx, id.RoomAlias(alias)) })
	if err != nil {
		return "", err
	}
	return res.RoomID, nil
}

func (h homeserver) joined(ctx context.Context) ([]id.RoomID, error) {
	res, err := ask(ctx, "joined_rooms", func(r *mautrix.RespJoinedRooms) bool { return r.JoinedRooms != nil },
		func() (*mautrix.RespJoinedRooms, error) { return h.client.JoinedRooms(ctx) })
	if err != nil {
		return nil, err
	}
	return res.JoinedRooms, nil
}

// join a room by its ID or by an alias.
func (h homeserver) join(ctx context.Context, room string) error {
	_, err := ask(ctx, "room_id", func(r *mautrix.RespJoinRoom) bool { return r.RoomID != "" },
		func() (*mautrix.RespJoinRoom, error) {
			if strings.HasPrefix(room, "!") {
				return h.client.JoinRoomByID(ctx, id.RoomID(room))
			}
			return h.client.JoinRoom(ctx, room, nil)
		})
	return err
}

func (h homeserver) encryption(ctx context.Context, room id.RoomID) (id.Algorithm, error) {
	res, err := ask(ctx, "algorithm", func(c *event.EncryptionEventContent) bool { return c.Algorithm != "" }, func() (*event.EncryptionEventContent, error) {
		var c event.EncryptionEventContent
		return &c, h.client.StateEvent(ctx, room, event.StateEncryption, "", &c)
	})
	if err != nil {
		return "", err
	}
	return res.Algorithm, nil
}

func (h homeserver) membership(ctx context.Context, room id.RoomID, user id.UserID) (event.Membership, error) {
	res, err := ask(ctx, "membership", func(c *event.MemberEventContent) bool { return c.Membership != "" }, func() (*event.MemberEventContent, error) {
		var c event.MemberEventContent
		return &c, h.client.StateEvent(ctx, room, event.StateMember, user.String(), &c)
	})
	if err != nil {
		return "", err
	}
	return res.Membership, nil
}

// power that a user has in the room, and that which messages want there. Where nothing is said about it, everybody may write.
func (h homeserver) power(ctx context.Context, room id.RoomID, user id.UserID) (has, wants int, err error) {
	levels, err := ask(ctx, "content", func(c **event.PowerLevelsEventContent) bool { return *c != nil }, func() (**event.PowerLevelsEventContent, error) {
		var c *event.PowerLevelsEventContent
		return &c, h.client.StateEvent(ctx, room, event.StatePowerLevels, "", &c)
	})
	if errors.Is(err, mautrix.MNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	has, wants = (*levels).GetUserLevel(user), (*levels).GetEventLevel(event.EventMessage)
	if has >= wants {
		return has, wants, nil
	}
	// Newer rooms do not list who made them.
	made, err := ask(ctx, "sender", func(e *event.Event) bool { return e.Sender != "" },
		func() (*event.Event, error) { return h.client.FullStateEvent(ctx, room, event.StateCreate, "") })
	if err != nil {
		return 0, 0, err
	}
	(*levels).CreateEvent = made
	return (*levels).GetUserLevel(user), wants, nil
}

// invite a user. An answer to that has nothing in it.
func (h homeserver) invite(ctx context.Context, room id.RoomID, user id.UserID) error {
	return patiently(ctx, func() error {
		_, err := h.client.InviteUser(ctx, room, &mautrix.ReqInviteUser{UserID: user})
		return err
	})
}
