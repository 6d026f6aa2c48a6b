package names

import "github.com/spf13/cobra"

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		newAcquire(), newRenew(), newRelease(), newLs(), newShow(), newHistory(), newWatch(),
		newTransfer(), newPin(), newUnpin(), newRevoke(), newMark(), newToken(), newConsole(),
		newMove(), newFloor(), newCollect(), newSchema(),
	}
}
