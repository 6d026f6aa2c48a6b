package client

import "github.com/spf13/cobra"

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newStatus(), newHealth(), newTransferLeadership(), newMember(), newFound(), newLease(), newUser(), newRole(), newAccess(), newAudit()}
}
