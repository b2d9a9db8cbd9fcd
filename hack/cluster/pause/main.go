// Command pause holds a pod's namespaces open until it is told to stop.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	// As the first process of a shared process namespace it inherits orphans; ignoring their end lets the kernel reap them.
	signal.Ignore(syscall.SIGCHLD)
	<-stop
}
