// Command app is the one program of the containers that the tests start.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	switch os.Args[1] {
	case "serve":
		fmt.Println("serving")
		fmt.Fprintln(os.Stderr, "with a warning")
		time.Sleep(time.Hour)
	case "say":
		fmt.Print(strings.Join(os.Args[2:], "|"))
		fmt.Fprint(os.Stderr, os.Getuid())
		os.Exit(3)
	case "flood":
		for i := range 100000 {
			fmt.Printf("line %07d\n", i)
		}
	case "hang":
		if len(os.Args) == 2 {
			_ = exec.Command(os.Args[0], "hang", "child").Start()
		}
		fmt.Println("hanging")
		time.Sleep(time.Hour)
	}
}
