package join

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	sample "nisse.io/nisse/config/device"
)

// unit of systemd at its place; true when it was put there. One that somebody wrote otherwise is theirs.
func (m *machine) unit(elevated bool) (bool, error) {
	old, err := os.ReadFile(m.path(unitFile))
	text := sample.Unit
	if elevated {
		text = sample.ElevatedUnit
	}
	mark, _, _ := strings.Cut(text, "\n")
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return false, err
	case string(old) == text:
		m.tell(false, unitFile)
		return false, nil
	case !strings.HasPrefix(string(old), mark):
		fmt.Fprintf(m.out, "%-9s %s, which join did not write\n", "unchanged", unitFile)
		return false, nil
	}
	if err := m.write(unitFile, []byte(text), 0o644, unowned); err != nil {
		return false, err
	}
	m.tell(true, unitFile)
	return true, nil
}

// serve from now on.
func (m *machine) serve(ctx context.Context, elevated, reload, restart bool) error {
	if m.systemctl == nil {
		as := "runuser -u " + account + " -- "
		if elevated {
			as = ""
		}
		fmt.Fprintf(m.out, "\nNo systemd runs here. Have whatever starts things on this machine run:\n\n    %s%s run --config %s\n", as, program, configFile)
		return nil
	}
	if reload {
		if err := m.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	on := m.systemctl(ctx, "is-enabled", "--quiet", service) == nil && m.systemctl(ctx, "is-active", "--quiet", service) == nil
	if on && !restart {
		m.tell(false, service+" runs")
		return nil
	}
	m.changed = true
	if err := m.systemctl(ctx, "enable", "--quiet", service); err != nil {
		return err
	}
	if err := m.systemctl(ctx, "restart", service); err != nil {
		return fmt.Errorf("%w; journalctl -u nisse-device says why", err)
	}
	fmt.Fprintf(m.out, "%-9s %s\n", "started", service)
	return nil
}
