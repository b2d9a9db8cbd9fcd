// Scriptedmodel serves a scenario as an OpenAI-compatible model.
//
//	go run ./test/scriptedmodel/cmd -listen 127.0.0.1:0 [-scenario FILE]… [-set NAME=VALUE]… [-api-key KEY]
//
// Without a scenario it serves the demo's. The first line on standard output is the base URL, once it listens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"nisse.io/nisse/test/scriptedmodel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "scriptedmodel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("scriptedmodel", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on; port 0 lets the system choose")
	key := flags.String("api-key", os.Getenv("SCRIPTEDMODEL_API_KEY"), "bearer token that requests must carry; none when empty (also SCRIPTEDMODEL_API_KEY)")
	var scenarios []*scriptedmodel.Scenario
	flags.Func("scenario", "`file` with a scenario; given twice, the rules of the first come first", func(path string) error {
		s, err := scriptedmodel.Load(path)
		scenarios = append(scenarios, s)
		return err
	})
	vars := make(map[string]string)
	flags.Func("set", "`name=value` of a variable of the scenario, such as device=web1", func(s string) error {
		name, value, found := strings.Cut(s, "=")
		if !found {
			return fmt.Errorf("%q has no =", s)
		}
		vars[name] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(scenarios) == 0 {
		demo, err := scriptedmodel.Demo()
		if err != nil {
			return err
		}
		scenarios = append(scenarios, demo)
	}
	scenario := scriptedmodel.Join(append(scenarios, &scriptedmodel.Scenario{Vars: vars})...)

	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another with -listen", *listen, err)
	}
	if _, err := fmt.Fprintf(out, "http://%s/v1\n", l.Addr()); err != nil {
		return fmt.Errorf("print the address: %w", err)
	}
	return scriptedmodel.New(scenario, *key).Serve(ctx, l)
}
