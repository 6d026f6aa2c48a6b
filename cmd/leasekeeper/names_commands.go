package main

import "github.com/spf13/cobra"

// nameCommands are the commands of this package.
func nameCommands() []*cobra.Command {
	return []*cobra.Command{
		newAcquire(), newRenew(), newRelease(), newLs(), newShow(), newHistory(), newWatch(),
		newTransfer(), newPin(), newUnpin(), newRevoke(), newToken(),
		newMove(), newFloor(), newCollect(), newSchema(),
	}
}
