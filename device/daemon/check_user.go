package daemon

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/manifest"
)

// runsAs tells whom a manifest's commands run as, and warns where this device cannot be whom they need, or is more than they may need.
func runsAs(w io.Writer, warn func(string, ...any), c config.Config, m *manifest.Manifest) {
	name := cmp.Or(m.User, c.User)
	_, err := confine.Lookup(name)
	switch {
	case err != nil:
		warn("%s; nothing of this manifest is done until then", err)
		return
	case name == "" && os.Geteuid() == 0:
		warn("neither the manifest nor the config names a user, so its commands run as root; set user: in the config")
		return
	case m.Privilege == manifest.Elevated && os.Geteuid() != 0:
		warn("this manifest is Elevated, and the device runs as %s, who is not root: what only root can do is refused or fails; "+
			"nisse-device join %s with the line of before and --elevated lets the device be root", confine.Self(), c.Device)
		return
	case name == "":
		name = confine.Self()
	}
	fmt.Fprintf(w, "      runs as %s\n", name)
}
