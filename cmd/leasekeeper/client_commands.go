package main

import "github.com/spf13/cobra"

// clientCommands are the commands of this package.
func clientCommands() []*cobra.Command {
	return []*cobra.Command{newStatus(), newTransferLeadership(), newFound(), newLease()}
}
