// Command kubectl-nisse is the kubectl plugin: kubectl nisse …
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"nisse.io/nisse/internal/version"
	"nisse.io/nisse/kubectl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := kubectl.New(version.Version).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
