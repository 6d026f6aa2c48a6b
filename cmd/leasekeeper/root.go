package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/client"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/demo"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/doctor"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/manual"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/names"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/runner"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/serve"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/snapshot"
)

// run runs the command line and returns the exit code of the process.
func run(args []string, stdout, stderr io.Writer) int {
	color := new(console.Color)
	color.Obey(os.Getenv)
	root := newRootWith(color)
	root.SetArgs(args)
	root.SetOut(console.NewStream(stdout, color))
	root.SetErr(console.NewStream(stderr, color))
	return command.Report(root.Execute(), stderr)
}

// newRoot returns the command leasekeeper with all its subcommands.
func newRoot() *cobra.Command { return newRootWith(new(console.Color)) }

// newRootWith is newRoot with a place for the value of --color.
func newRootWith(color *console.Color) *cobra.Command {
	root := &cobra.Command{
		Use:   "leasekeeper",
		Short: "Leases: time-bound rights that end unless they are renewed",
		Long: `Leasekeeper grants leases: time-bound rights that end unless they are renewed. "leasekeeper serve" runs a
lease server that speaks etcd's v3 gRPC API. Other commands hold names on such a server, on etcd, or in a database:
a SQLite file, PostgreSQL or MongoDB.`,
		Example: `  leasekeeper run jobs/nightly -- backup   # run a command while holding a name, on this machine
  leasekeeper serve                        # start a server in this directory
  leasekeeper status                       # show its health`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          command.NoArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().Var(color, "color", "`when` to show colours: auto (on a terminal only), always or never")
	root.SetFlagErrorFunc(command.WrongFlag)
	root.AddCommand(newVersion())
	root.AddCommand(serve.Commands(programVersion())...)
	root.AddCommand(snapshot.Commands()...)
	root.AddCommand(client.Commands()...)
	root.AddCommand(runner.Commands()...)
	root.AddCommand(names.Commands()...)
	root.AddCommand(doctor.Commands(programVersion())...)
	root.AddCommand(demo.Commands()...)
	root.AddCommand(manual.Commands(programVersion())...)
	help := command.NewHelp()
	root.SetHelpCommand(help)
	root.AddCommand(help)
	command.Arrange(root)
	addCompletions(root)
	return root
}
