// Command kubectl-nisse is the kubectl plugin: kubectl nisse …
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/version"
	"nisse.io/nisse/kubectl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := kubectl.New(version.Version).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		var broken *checkpoint.Finding
		if errors.As(err, &broken) { // a verdict, not a failure
			os.Exit(2)
		}
		os.Exit(1)
	}
}
