// Person is somebody with a Matrix account, for scripts: the demo and the end-to-end tests speak through it.
//
//	person [-home DIR] [-homeserver URL] -as NAME [-password TEXT] COMMAND …
//
// The homeserver is the one that up.sh wrote into DIR/env. Sessions are kept in DIR/people, one for each name. What a
// command finds out goes to standard output, one value on one line, for the shell to pick up; all else to standard error.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"nisse.io/nisse/internal/testrig/person"
)

const usage = `usage: person [-home DIR] [-homeserver URL] -as NAME [-password TEXT] COMMAND …

  register [-admin]                                       make the account (needs the registration secret of DIR/env)
  create-room [-alias LOCAL] [-name TEXT] [USER…]         create a room, or join it if the alias exists; invite USERs; prints its id
  invite -room ROOM USER…                                 invite, where not yet in the room
  join ROOM                                               prints the room's id
  members ROOM                                            prints who is in the room
  say -room ROOM [-reply EVENT] [-thread EVENT] TEXT      prints the event's id
  react -room ROOM EVENT EMOJI                            prints the event's id
  wait -room ROOM [-from USER] [-match REGEXP] [-after EVENT] [-thread EVENT] [-timeout 60s] [-id]
                                                          prints the message, or with -id its event's id
  show [-thread EVENT] ROOM                               prints the conversation, or one thread of it with its root

ROOM is an alias (#ops:nisse.local) or an id (!…), USER a full id (@ops:nisse.local).
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, errUsage) {
			fmt.Fprint(os.Stderr, usage)
			if errors.Is(err, flag.ErrHelp) {
				os.Exit(0)
			}
		}
		fmt.Fprintln(os.Stderr, "person:", err)
		os.Exit(1)
	}
}

// errUsage marks errors about how the program was called.
var errUsage = errors.New("see the usage above")

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("person")
	home := flags.String("home", defaultHome(), "")
	url := flags.String("homeserver", "", "")
	name := flags.String("as", "", "")
	password := flags.String("password", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *name == "" {
		return fmt.Errorf("-as says who speaks: %w", errUsage)
	}
	env, err := readEnv(filepath.Join(*home, "env"))
	if err != nil && *url == "" {
		return fmt.Errorf("%w; bring a homeserver up with hack/homeserver/up.sh, or name one with -homeserver", err)
	}
	c := caller{
		account: person.Account{
			Homeserver: cmp.Or(*url, env["HOMESERVER_URL"]),
			Name:       *name,
			Password:   cmp.Or(*password, os.Getenv("PERSON_PASSWORD"), "password-of-"+*name),
		},
		secret:  env["HOMESERVER_REGISTRATION_SECRET"],
		session: filepath.Join(*home, "people", *name+".json"),
		out:     out,
	}
	return c.command(ctx, flags.Arg(0), flags.Args())
}

func defaultHome() string {
	return filepath.Join(cmp.Or(os.Getenv("NISSE_RUN"), "/var/lib/nisse-dev"), "homeserver")
}

func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the errors come back from Parse
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w: %w", flags.Name(), err, errUsage)
	}
	return nil
}

// readEnv reads lines of KEY=value.
func readEnv(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("find the homeserver: %w", err)
	}
	defer f.Close()
	env := make(map[string]string)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, found := strings.Cut(lines.Text(), "="); found {
			env[key] = value
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return env, nil
}
