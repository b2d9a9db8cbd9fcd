package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"nisse.io/nisse/device/join"
)

// joinMachine by what kubectl nisse enroll printed.
func joinMachine(ctx context.Context, args []string) error {
	o := join.Options{}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.Device, args = args[0], args[1:]
	}
	f := flag.NewFlagSet("nisse-device join", flag.ContinueOnError)
	f.SetOutput(os.Stderr)
	f.StringVar(&o.RootKey, "root-key", "", "public half of the root key, whose manifests this machine will believe")
	f.StringVar(&o.Listen, "listen", "", "address:port to listen on, the mesh address of this machine")
	f.BoolVar(&o.Open, "open-to-everybody", false, "let it be an address that strangers reach, or every address: they can connect, and try")
	f.BoolVar(&o.Elevated, "elevated", false, "let the device be root, which Elevated manifests want; what no manifest says runs as root runs as nisse-device")
	f.StringVar(&o.Namespace, "namespace", "nisse", "namespace of the Device, for the line that is printed")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("join: unexpected %q", f.Arg(0))
	case o.Device == "" || o.RootKey == "" || o.Listen == "":
		return errors.New("join: NAME, --root-key and --listen are all needed; kubectl nisse enroll NAME prints the whole line")
	}
	return join.Run(ctx, o, os.Stdout)
}
