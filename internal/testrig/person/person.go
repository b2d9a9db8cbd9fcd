// Package person acts as somebody in Matrix rooms: it registers, joins, writes, waits for an answer and reads the
// conversation, as a person with Element would. The demo and the end-to-end tests speak through it, and so meet Nisse
// only from the outside. Rooms are not encrypted.
package person

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/id"
	"maunium.net/go/mautrix/synapseadmin"
)

// retries is how often a request that meets a 429 or a 5xx is tried again, after the time the server asks for.
const retries = 8

// Person is somebody with a session at a homeserver. It may be used by one goroutine at a time.
type Person struct {
	client *mautrix.Client
}

// Account is what it takes to be let in.
type Account struct {
	Homeserver string // base URL, for example http://127.0.0.1:8008
	Name       string // local part, for example you
	Password   string // of at least 8 characters, which Dendrite insists on
}

// Register creates the account with the homeserver's registration secret. Somebody who is registered already stays as
// they are, password included; that is no error, so that a script may say it every time.
func Register(ctx context.Context, a Account, secret string, admin bool) error {
	client, err := newClient(a.Homeserver)
	if err != nil {
		return err
	}
	_, err = (&synapseadmin.Client{Client: client}).SharedSecretRegister(ctx, secret, synapseadmin.ReqSharedSecretRegister{
		Username: a.Name,
		Password: a.Password,
		Admin:    admin,
		// A device nobody uses would show in Element's list of sessions.
		InhibitLogin: true,
	})
	if errors.Is(err, mautrix.MUserInUse) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("register %s at %s: %w", a.Name, a.Homeserver, err)
	}
	return nil
}

// Login opens a new session, which is a new device.
func Login(ctx context.Context, a Account) (*Person, error) {
	client, err := newClient(a.Homeserver)
	if err != nil {
		return nil, err
	}
	_, err = client.Login(ctx, &mautrix.ReqLogin{
		Type:                     mautrix.AuthTypePassword,
		Identifier:               mautrix.UserIdentifier{Type: mautrix.IdentifierTypeUser, User: a.Name},
		Password:                 a.Password,
		InitialDeviceDisplayName: "scripted person",
		StoreCredentials:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("log in as %s at %s: %w", a.Name, a.Homeserver, err)
	}
	return &Person{client: client}, nil
}

// session is what a file keeps of a Person, so that ten commands in a row do not leave ten devices behind.
type session struct {
	Homeserver  string      `json:"homeserver"`
	UserID      id.UserID   `json:"userID"`
	DeviceID    id.DeviceID `json:"deviceID"`
	AccessToken string      `json:"accessToken"`
}

// Resume takes up the session kept in path while the server still accepts it, and else logs in and keeps the new one.
func Resume(ctx context.Context, a Account, path string) (*Person, error) {
	if raw, err := os.ReadFile(path); err == nil {
		var kept session
		if err := json.Unmarshal(raw, &kept); err == nil && kept.Homeserver == a.Homeserver {
			client, err := newClient(kept.Homeserver)
			if err != nil {
				return nil, err
			}
			client.UserID, client.DeviceID, client.AccessToken = kept.UserID, kept.DeviceID, kept.AccessToken
			switch _, err := client.Whoami(ctx); {
			case err == nil:
				return &Person{client: client}, nil
			case !errors.Is(err, mautrix.MUnknownToken):
				return nil, fmt.Errorf("ask %s whose session %s is: %w", kept.Homeserver, path, err)
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the kept session: %w", err)
	}
	p, err := Login(ctx, a)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(session{a.Homeserver, p.client.UserID, p.client.DeviceID, p.client.AccessToken})
	if err != nil {
		return nil, fmt.Errorf("keep the session: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("keep the session: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return nil, fmt.Errorf("keep the session: %w", err)
	}
	return p, nil
}

// UserID is the person's full Matrix id, for example @you:nisse.local.
func (p *Person) UserID() id.UserID { return p.client.UserID }

// Client is the person's client, for what this package has no method for.
func (p *Person) Client() *mautrix.Client { return p.client }

func newClient(homeserver string) (*mautrix.Client, error) {
	client, err := mautrix.NewClient(homeserver, "", "")
	if err != nil {
		return nil, fmt.Errorf("homeserver URL %q: %w", homeserver, err)
	}
	client.DefaultHTTPRetries = retries
	return client, nil
}
