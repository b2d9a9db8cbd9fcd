package matrix

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/telemetry"
)

// ErrNoCredentials is wrapped when nothing says how an account logs in.
var ErrNoCredentials = errors.New("no credentials")

// Credentials of the accounts. Both places are read anew at each login, so that a Secret may change under a running gateway.
type Credentials struct {
	// Dir holds files named *.json, each {"userID": "@ops:example.org", "password": "…"}. The names of the files mean nothing.
	Dir string
	// RegistrationSecretFile holds the homeserver's registration shared secret. With it, accounts of ServerName that have no file
	// are made, with a password derived from the secret and the user ID.
	RegistrationSecretFile string
	ServerName             string
}

// password of an account.
func (c Credentials) password(user id.UserID) (string, error) {
	if c.Dir != "" {
		files, err := filepath.Glob(filepath.Join(c.Dir, "*.json"))
		if err != nil {
			return "", fmt.Errorf("look for credentials: %w", err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return "", fmt.Errorf("read credentials: %w", err)
			}
			var found struct {
				UserID   id.UserID `json:"userID"`
				Password string    `json:"password"`
			}
			if err := json.Unmarshal(raw, &found); err != nil {
				return "", fmt.Errorf("read credentials: %s is not {\"userID\": …, \"password\": …}", filepath.Base(file)) // the cause may quote the secret
			}
			if found.UserID == user {
				return found.Password, nil
			}
		}
	}
	secret, err := c.secret(user)
	if err != nil {
		return "", err
	}
	if secret == "" {
		return "", fmt.Errorf("%w: add an entry NAME.json with {\"userID\": \"%s\", \"password\": …} to the gateway's Secret (nisse-matrix in nisse-system unless the chart's values name another)",
			ErrNoCredentials, user)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("nisse.io/matrix-password/v1\x00" + user))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(mac.Sum(nil))), nil
}

// secret to register with; empty when this account cannot be registered here.
func (c Credentials) secret(user id.UserID) (string, error) {
	if c.RegistrationSecretFile == "" || (c.ServerName != "" && user.Homeserver() != c.ServerName) {
		return "", nil
	}
	raw, err := os.ReadFile(c.RegistrationSecretFile)
	if err != nil {
		return "", fmt.Errorf("read the registration secret: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// login takes up the session that is kept, if the homeserver still knows it as this account's, and else makes one: once for life.
func (a *Account) login(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	kept, ok, err := a.Store.Session(ctx, a.UserID.String())
	if err != nil {
		return err
	}
	if ok {
		a.as(kept)
		who, err := a.home.whoami(ctx)
		switch {
		case err == nil && who == a.UserID:
			return nil
		case err == nil:
			return fmt.Errorf("the kept session of %s belongs to %s now", a.UserID, who)
		case !errors.Is(err, mautrix.MUnknownToken):
			return fmt.Errorf("ask whose session it is: %w", err)
		}
	}
	password, err := a.Credentials.password(a.UserID)
	if err != nil {
		return err
	}
	a.home.client.ClearCredentials()
	fresh := false
	if !ok {
		if fresh, err = a.register(ctx, password); err != nil {
			return err
		}
	}
	res, err := a.enterPassword(ctx, password, kept.DeviceID)
	if ok && errors.Is(err, mautrix.MForbidden) {
		// The homeserver may have been made anew, without this account.
		if fresh, err = a.register(ctx, password); err != nil {
			return err
		}
		res, err = a.enterPassword(ctx, password, kept.DeviceID)
	}
	if err != nil {
		return fmt.Errorf("log in as %s: %w", a.UserID, err)
	}
	if res.UserID != a.UserID {
		return fmt.Errorf("logged in as %s, not as %s; the homeserver has another server name", res.UserID, a.UserID)
	}
	made := store.Session{UserID: a.UserID.String(), Homeserver: a.Homeserver, DeviceID: res.DeviceID.String(), Token: res.AccessToken}
	if err := a.Store.KeepSession(ctx, made, fresh); err != nil {
		return err
	}
	a.as(made)
	telemetry.Changed(ctx, a.log, "session.created", telemetry.Event{Agent: a.Agent, Cause: a.UserID.String()})
	return nil
}

// enterPassword logs in, on the same device again if there was one.
func (a *Account) enterPassword(ctx context.Context, password, device string) (*mautrix.RespLogin, error) {
	return a.home.login(ctx, &mautrix.ReqLogin{
		Type:                     mautrix.AuthTypePassword,
		Identifier:               mautrix.UserIdentifier{Type: mautrix.IdentifierTypeUser, User: a.UserID.String()},
		Password:                 password,
		DeviceID:                 id.DeviceID(device),
		InitialDeviceDisplayName: "Nisse gateway",
	})
}

// as lets the client speak with a session.
func (a *Account) as(s store.Session) {
	c := a.home.client
	c.UserID, c.DeviceID, c.AccessToken = a.UserID, id.DeviceID(s.DeviceID), s.Token
}

// register makes the account if it may, and tells whether it did; one that exists stays as it is.
func (a *Account) register(ctx context.Context, password string) (made bool, err error) {
	secret, err := a.Credentials.secret(a.UserID)
	if err != nil || secret == "" {
		return false, err
	}
	local, _, err := a.UserID.Parse()
	if err != nil {
		return false, fmt.Errorf("user ID %s: %w", a.UserID, err)
	}
	switch err = a.home.register(ctx, secret, local, password); {
	case err == nil:
		telemetry.Changed(ctx, a.log, "account.registered", telemetry.Event{Agent: a.Agent, Cause: a.UserID.String()})
		return true, nil
	case errors.Is(err, mautrix.MUserInUse):
		return false, nil
	case away(err):
		return false, fmt.Errorf("register %s: %w", a.UserID, err)
	}
	// The account may exist and be good without it; if not, the login says so.
	a.log.WarnContext(ctx, "account.register.refused", "error", err.Error())
	return false, nil
}
