package serve

import "github.com/spf13/cobra"

// Commands returns the commands of this package. version is the version that the server reports.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newServe(version)}
}
