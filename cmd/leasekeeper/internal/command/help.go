package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NewHelp returns the command help.
func NewHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]...",
		Short:   "Show the help of a command",
		Long:    "Show the help of a command, or a list of all commands.",
		Example: "  leasekeeper help run\n  leasekeeper help lease list",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := find(cmd.Root(), args)
			if err != nil {
				return err
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			found, err := find(cmd.Root(), args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := slices.DeleteFunc(available(found), func(name string) bool { return !strings.HasPrefix(name, word) })
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// find returns the command below root that the words name.
func find(root *cobra.Command, words []string) (*cobra.Command, error) {
	found := root
	for _, word := range words {
		below := found.Commands()
		i := slices.IndexFunc(below, func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if i < 0 {
			return nil, unknownCommand(found, word)
		}
		found = below[i]
	}
	return found, nil
}
