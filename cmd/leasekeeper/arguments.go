package main

import (
	"strings"

	"github.com/spf13/cobra"
)

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

// exactly refuses any other number of arguments and says what they are for.
func exactly(n int, what string) cobra.PositionalArgs {
	return between(n, n, what)
}

// between is for commands whose last arguments may be left away.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return wrongUsage("`%s` takes %s, but got %s; see `%s --help`", cmd.CommandPath(), what, plural(len(args), "argument", "arguments"), cmd.CommandPath())
		}
		return nil
	}
}

// checkOutput refuses a value of --output that no command knows.
func checkOutput(output string) error {
	if output != outputTable && output != outputJSON {
		return wrongUsage("unknown output %q: write -o table or -o json", output)
	}
	return nil
}
