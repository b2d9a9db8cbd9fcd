package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"nisse.io/nisse/device"
	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

// InstallManifest from a file with its envelope, while no device runs on the state; - is stdin.
func InstallManifest(ctx context.Context, c config.Config, file string, stdin io.Reader, w io.Writer) error {
	if err := MayRun(c); err != nil {
		return err
	}
	envelope, err := readEnvelope(file, stdin)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	o, err := options(c)
	if err != nil {
		return err
	}
	d, _, err := device.New(ctx, o)
	if errors.Is(err, store.ErrInUse) {
		return fmt.Errorf("%w: stop it first, or let the cluster bring the manifest", err)
	}
	if err != nil {
		return err
	}
	h, err := d.Install(ctx, string(envelope))
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("manifest %s: %w", file, err)
	}
	_, err = fmt.Fprintf(w, "held: the %s manifest %s of epoch %d, until %s\n", h.Privilege, h.Digest, h.Epoch, h.ExpiresAt)
	return err
}

func readEnvelope(file string, stdin io.Reader) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	b, err := io.ReadAll(io.LimitReader(stdin, dsse.MaxEnvelope+1))
	if err == nil && len(b) > dsse.MaxEnvelope {
		err = errors.New("too large for a manifest")
	}
	return b, err
}

// ShowManifests that are held: a line each, or each in its signed form. A device may run meanwhile.
func ShowManifests(ctx context.Context, c config.Config, asJSON bool, w io.Writer) error {
	held, strange, err := holds(ctx, c)
	if err != nil {
		return err
	}
	for _, h := range held.All() {
		if asJSON {
			text, err := h.Canonical()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\n", text)
			continue
		}
		state := "in force"
		if reason, _ := held.Dead(h, time.Now().Unix()); reason != "" {
			state = string(reason)
		}
		fmt.Fprintf(w, "%s: %s\n", headline(h), state)
	}
	if len(held.All()) == 0 {
		strange = append(strange, &wire.RefusedError{Reason: wire.NoManifest, Message: "no manifest is held yet"})
	}
	return errors.Join(strange...)
}

func headline(h *manifests.Held) string {
	return fmt.Sprintf("%s manifest %s, epoch %d, until %s", h.Privilege, h.Digest, h.Epoch, h.ExpiresAt)
}

// HoldsElevated tells whether a device of this config holds an Elevated manifest, in force or not. A state that cannot be read is for Check to tell of.
func HoldsElevated(ctx context.Context, c config.Config) bool {
	held, _, err := holds(ctx, c)
	return err == nil && slices.ContainsFunc(held.All(), func(h *manifests.Held) bool { return h.Privilege == manifest.Elevated })
}

// holds what the state of a config says. No state is no manifest.
func holds(ctx context.Context, c config.Config) (manifests.Set, []error, error) {
	root, err := c.Root()
	if err != nil {
		return manifests.Set{}, nil, err
	}
	st, err := store.OpenReadOnly(c.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return manifests.Set{}, nil, nil
	}
	if err != nil {
		return manifests.Set{}, nil, err
	}
	defer st.Close()
	return manifests.Load(ctx, st.DB(), c.Device, root)
}
