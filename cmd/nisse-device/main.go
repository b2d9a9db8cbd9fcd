// Command nisse-device is the daemon on a machine that agents may work on.
package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/daemon"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/telemetry"
)

const usage = `nisse-device lets agents work on this machine, within the manifests that its root key signed.

  nisse-device join  NAME --root-key KEY --listen ADDRESS:PORT
                                       make this machine the device NAME: an account, its key, its config, a unit of systemd
  nisse-device init  --dir DIR         make the device's key in DIR, unless there is one
  nisse-device check --config FILE     read config and manifests back, and tell what works on this machine
  nisse-device id    --config FILE     print what the Device object knows it by: publicKey and rootKey
  nisse-device run   --config FILE     serve
  nisse-device manifest install --config FILE ENVELOPE
                                       hold a signed manifest from a file, or from standard input (-), while the device is stopped;
                                       to a device that runs, the cluster brings it
  nisse-device manifest show --config FILE [--json]
                                       print the manifests that are held
  nisse-device audit verify (--dir DIR --key KEY | --config FILE) [--checkpoint FILE] [--rows N --head HASH]
                                       tell whether the audit chain is whole, and still the one that was seen; what is wrong is told
                                       apart (Edited, Gap, Duplicate, Forked, Truncated) and its first row is named
  nisse-device audit show (--dir DIR | --config FILE) [--after N] [--json] [--line N]
                                       print the audit, or a line of it that an order of the root key has ended
`

// errNoCommand is wrapped when what was typed is no command.
var errNoCommand = errors.New("there is no command")

// commands that there are; audit and manifest alone ask for the usage.
var commands = []string{"join", "init", "check", "id", "run", "manifest", "manifest install", "manifest show", "audit", "audit verify", "audit show", "help"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errNoCommand):
		fmt.Fprintf(os.Stderr, "nisse-device: %v\n\n%s", err, usage)
		os.Exit(2)
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "nisse-device:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	if (command == "audit" || command == "manifest") && len(args) > 0 {
		command, args = command+" "+args[0], args[1:]
	}
	if command != "" && !strings.HasPrefix(command, "-") && !slices.Contains(commands, command) {
		return fmt.Errorf("%w %q", errNoCommand, command)
	}
	if command == "join" {
		return joinMachine(ctx, args)
	}
	f := flag.NewFlagSet("nisse-device "+command, flag.ContinueOnError)
	f.SetOutput(os.Stderr)
	dir := f.String("dir", "", "state directory")
	file := f.String("config", "", "configuration file")
	rows := f.Int64("rows", 0, "rows that were seen of the chain before")
	head := f.String("head", "", "hash of the last row that was seen")
	seal := f.String("checkpoint", "", "file with a checkpoint of the device, as the cluster keeps it")
	public := f.String("key", "", "public key of the device that signed the checkpoint, in base64; the configured one when empty")
	after := f.Int64("after", 0, "show rows after this one")
	line := f.Int64("line", -1, "show the rows of a line that has ended; 0 is the first")
	asJSON := f.Bool("json", false, "show rows as they are hashed, manifests as they are signed")
	if err := f.Parse(args); err != nil {
		return err
	}
	operands := f.Args()
	if command == "manifest install" {
		if len(operands) != 1 {
			return errors.New("manifest install: name one file with the signed manifest, or - for standard input")
		}
		operands = nil
	}
	if len(operands) > 0 {
		return fmt.Errorf("%s: unexpected %q", command, operands[0])
	}
	if command == "init" {
		return makeKey(*dir)
	}
	c, err := configuration(command, *file, *dir)
	if err != nil {
		return err
	}
	switch command {
	case "check":
		return daemon.Check(ctx, c, os.Stdout)
	case "id":
		return daemon.Identity(c, os.Stdout)
	case "run":
		return daemon.Run(ctx, c, telemetry.New(os.Stderr, "device", slog.LevelInfo))
	case "manifest install":
		return daemon.InstallManifest(ctx, c, f.Arg(0), os.Stdin, os.Stdout)
	case "manifest show":
		return daemon.ShowManifests(ctx, c, *asJSON, os.Stdout)
	case "audit show":
		if *line >= 0 {
			return daemon.ShowLine(ctx, c.StateDir, *line, os.Stdout)
		}
		return daemon.ShowAudit(ctx, c.StateDir, *after, *asJSON, os.Stdout)
	case "audit verify":
		if (*rows > 0) != (*head != "") {
			return errors.New("audit verify: --rows and --head belong together")
		}
		var seen []chain.Expect
		if *rows > 0 {
			seen = append(seen, chain.Expect{Rows: *rows, Head: *head})
		}
		if *seal != "" {
			e, err := daemon.Kept(c, *seal, *public)
			if err != nil {
				return fmt.Errorf("audit verify: --checkpoint: %w", err)
			}
			seen = append(seen, e)
		}
		return daemon.VerifyAudit(ctx, c.StateDir, os.Stdout, seen...)
	}
	return flag.ErrHelp
}

// configuration from a file, or of the state directory alone, which is enough to look at the audit.
func configuration(command, file, dir string) (config.Config, error) {
	switch command {
	case "audit show", "audit verify":
		if file == "" && dir != "" {
			return config.Config{StateDir: dir}, nil
		}
	case "check", "id", "run", "manifest install", "manifest show":
	default:
		return config.Config{}, flag.ErrHelp
	}
	if file == "" {
		return config.Config{}, fmt.Errorf("%s: --config is missing", command)
	}
	return config.Read(file)
}

func makeKey(dir string) error {
	if dir == "" {
		return errors.New("init: --dir is missing")
	}
	key, made, err := config.MakeKey(dir)
	if err != nil {
		return err
	}
	verb := "is there already"
	if made {
		verb = "made"
	}
	fmt.Printf("%s %s; publicKey: %s\n", config.KeyFile(dir), verb, dsse.EncodeKey(key.Public().(ed25519.PublicKey)))
	return nil
}
