package main

import "github.com/spf13/cobra"

// serveCommands are the commands of this package. version is what the server says of itself.
func serveCommands(version string) []*cobra.Command {
	return []*cobra.Command{newServe(version), newRestore()}
}
