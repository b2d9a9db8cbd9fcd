package daemon

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"nisse.io/nisse/device/capability"
	"nisse.io/nisse/internal/manifest"
)

// means of this machine, with a warning for each that the manifest counts on in vain.
func means(ctx context.Context, w io.Writer, warn func(string, ...any), m *manifest.Manifest) {
	for _, mean := range capability.Means(ctx, m) {
		switch {
		case mean.Err == nil:
			fmt.Fprintf(w, "ok    %s: %s\n", mean.Name, mean.What)
		case slices.ContainsFunc(mean.Capabilities, m.Has):
			warn("%s: %s", mean.Name, mean.Err)
		default:
			fmt.Fprintf(w, "      %s: %s\n", mean.Name, mean.Err)
		}
	}
}

// describeMachine tells what the manifest allows beside paths and commands.
func describeMachine(w io.Writer, m *manifest.Manifest) {
	tell := func(operations []string, on string, r manifest.Rule) {
		for _, o := range operations {
			fmt.Fprintf(w, "      %-8s %-40s approval %s\n", o, on, r.Approval)
		}
	}
	for _, r := range m.Repositories {
		tell(r.Operations, strings.Join(append([]string{r.Glob}, r.Remotes...), " "), r.Rule)
	}
	for _, r := range m.Packages {
		tell(r.Operations, strings.Join(r.Names, " "), r.Rule)
	}
	for _, r := range m.Processes {
		owner := r.Owner
		if owner == "" {
			owner = manifest.Own
		}
		tell(r.Operations, string(owner), r.Rule)
	}
	for _, r := range m.Containers {
		tell(r.Operations, strings.Join(r.Names, " "), r.Rule)
		for _, c := range r.Commands {
			fmt.Fprintf(w, "               %s\n", strings.Join(c.Argv, " "))
		}
	}
	for _, r := range m.Desktop {
		tell(r.Operations, "", r.Rule)
	}
}
