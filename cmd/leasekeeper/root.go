package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// run runs the command line and returns the exit code of the process.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return report(root.Execute(), stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "leasekeeper",
		Short: "Leases: time-bound rights that end unless they are renewed",
		Long: `Leasekeeper gives out leases: time-bound rights that end unless they are renewed. A server of
them, which speaks etcd's v3 gRPC API, is one of the commands; others hold names on such a server, on etcd, or in a
database: a SQLite file, PostgreSQL or MongoDB.`,
		Example: `  leasekeeper run jobs/nightly -- backup   # run a command while holding a name, on this machine
  leasekeeper serve                        # start a server in this folder
  leasekeeper status                       # ask it how it is`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return wrongUsage("%v; `%s --help` lists the flags", err, cmd.CommandPath())
	})
	root.AddCommand(newServe(), newRestore(), newStatus(), newTransferLeadership(), newFound(), newLease(), newVersion(), newRun(),
		newAcquire(), newRenew(), newRelease(), newLs(), newShow(), newHistory(), newWatch(),
		newTransfer(), newPin(), newUnpin(), newRevoke(), newToken(), newExplain(),
		newMove(), newFloor(), newCollect(), newSchema())
	return root
}

// noArguments refuses arguments, which on a command with subcommands are misspelt ones.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return wrongUsage("`%s` takes no arguments, but got %q; see `%s --help`",
			cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	var hint string
	for distance := 1; distance <= 2 && hint == ""; distance++ {
		cmd.SuggestionsMinimumDistance = distance
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = " (did you mean " + strings.Join(near, " or ") + "?)"
		}
	}
	return wrongUsage("there is no command %q%s; `%s --help` lists what there is",
		cmd.CommandPath()+" "+args[0], hint, cmd.CommandPath())
}
