package serve

import "github.com/spf13/cobra"

// Commands are the commands of this package. version is what the server says of itself.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newServe(version), newRestore()}
}
