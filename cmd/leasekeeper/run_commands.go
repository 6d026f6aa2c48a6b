package main

import "github.com/spf13/cobra"

// runCommands are the commands of this package.
func runCommands() []*cobra.Command {
	return []*cobra.Command{newRun(), newExplain()}
}
