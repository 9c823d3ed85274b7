// Command headgate is the server and its tools. This file starts the command that
// was asked for; cli.go lists the commands, one file holds each of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/httpapi/client"
)

// Exit statuses.
const (
	exitFailed = 1 // the command could not do its work
	exitUsage  = 2 // the command line is wrong
	exitPartly = 3 // a backup was made, without damaged repos
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run carries out one command line and gives the exit status. The context ends at
// SIGINT and SIGTERM; a command that serves then finishes what runs.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	parser, err := kong.New(&cli{},
		kong.Name("headgate"),
		kong.Description("A Git-backed session state store and gateway."),
		kong.DefaultEnvars("HEADGATE"),
		kong.Writers(stdout, stderr),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(stdout, (*io.Writer)(nil)),
	)
	if err != nil {
		return complain(stderr, err, exitUsage)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return complain(stderr, err, exitUsage)
	}
	if err := command.Run(); errors.Is(err, errIncomplete) {
		return complain(stderr, err, exitPartly)
	} else if err != nil {
		return complain(stderr, err, exitFailed)
	}
	return 0
}

func complain(stderr io.Writer, err error, status int) int {
	// Errors hold names of files and what others say: nothing of it may act on a terminal.
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = "headgate: " + line
		}
		fmt.Fprintln(stderr, client.Printable(line))
	}
	return status
}
