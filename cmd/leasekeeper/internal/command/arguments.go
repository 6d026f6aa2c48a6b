package command

import (
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// NoArguments refuses all arguments. On a command with subcommands it suggests similar names.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return WrongUsage("`%s` takes no arguments, but got %q; see `%s --help`",
			cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return unknownCommand(cmd, args[0])
}

// Exactly refuses any number of arguments but n. what describes the arguments in the error.
func Exactly(n int, what string) cobra.PositionalArgs {
	return Between(n, n, what)
}

// Between refuses fewer than least and more than most arguments. what describes the arguments in the error.
func Between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return WrongUsage("`%s` takes %s, but got %s; see `%s --help`", cmd.CommandPath(), what, console.Plural(len(args), "argument", "arguments"), cmd.CommandPath())
		}
		return nil
	}
}

// CheckOutput refuses a value of --output that no command knows.
func CheckOutput(output string) error {
	if output != console.Table && output != console.JSON {
		return WrongUsage("unknown output %q: write -o table or -o json", output)
	}
	return nil
}
