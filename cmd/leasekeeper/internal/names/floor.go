package names

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// floorInfo is the JSON output of `floor show` and `floor raise`.
type floorInfo struct {
	Floor   uint64 `json:"floor"`
	Highest uint64 `json:"highest_token"` // the highest token of a record, or the floor if that is higher
}

// noFloor says what stores without a floor offer instead.
const noFloor = "its tokens are its revisions, which always grow; `leasekeeper restore` keeps them growing after a restore"

func newFloor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Show or raise the floor of a database's tokens",
		Long:  `Show or raise the floor of a database's tokens. Every token that is issued is above the floor of its namespace.`,
		Args:  command.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFloorShow(), newFloorRaise())
	return cmd
}

func newFloorShow() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the floor and the highest known token",
		Long:    `Show the floor of the namespace, and the highest token in any of its records.`,
		Example: "  leasekeeper floor show --store postgres://db.example.org/app",
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				const doing = "show the floor"
				client, err := clientOf(b, "a floor", noFloor)
				if err != nil {
					return store.Explain(doing, err)
				}
				highest, floor, err := client.HighestToken(ctx)
				if err != nil {
					return store.Explain(doing, err)
				}
				result := floorInfo{Floor: uint64(floor), Highest: uint64(highest)}
				if flags.Output == console.JSON {
					return console.PrintJSON(cmd.OutOrStdout(), result)
				}
				return console.PrintTable(cmd.OutOrStdout(), [][]string{
					{"floor", strconv.FormatUint(result.Floor, 10)}, {"highest token", strconv.FormatUint(result.Highest, 10)},
				})
			})
		},
	}
	flags.Register(cmd)
	return cmd
}

func newFloorRaise() *cobra.Command {
	var flags store.Flags
	by := uint64(0)
	cmd := &cobra.Command{
		Use:   "raise [TOKEN]",
		Short: "Raise the floor, so that all later tokens are larger",
		Long: `Raise the floor of the namespace: all tokens that are issued from then on are above it.

Do this when the database was restored from a backup or has lost acknowledged writes, before anyone uses its leases
again. The database does not know the tokens that it issued since the backup. It would issue them again, and resources
could not tell the holders apart.

TOKEN is the highest token that any resource has seen. If you do not know it, use --by, which adds a number to the
highest token in the database: choose far more than the tokens that can have been issued since the backup. A floor is
never lowered.`,
		Example: `  leasekeeper floor raise --by 1000000
  leasekeeper floor raise 48213`,
		Args: command.Between(0, 1, "a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := floorArgument(args, by, cmd.Flags().Changed("by"))
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				return raiseFloor(ctx, cmd, b, to, by, flags.Output)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().Uint64Var(&by, "by", 0, "raise the floor above the highest known token by this `number`")
	return cmd
}

// floorArgument returns the token to raise the floor to, or 0 if --by is given.
func floorArgument(args []string, by uint64, given bool) (leasekeeper.Token, error) {
	if given == (len(args) == 1) || given && by == 0 {
		return 0, command.WrongUsage("no token is given: write the highest token that any resource has seen, or --by 1000000, but not both")
	}
	if given {
		return 0, nil
	}
	t, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil || t == 0 {
		return 0, command.WrongUsage("%q is not a token: write the highest number that any resource has seen", args[0])
	}
	return leasekeeper.Token(t), nil
}

func raiseFloor(ctx context.Context, cmd *cobra.Command, b backend.Backend, to leasekeeper.Token, by uint64, output string) error {
	const doing = "raise the floor"
	client, err := clientOf(b, "a floor", noFloor)
	if err != nil {
		return store.Explain(doing, err)
	}
	highest, _, err := client.HighestToken(ctx)
	if err == nil && by > 0 {
		if to = highest + leasekeeper.Token(by); to < highest {
			return command.WrongUsage("--by %d leaves no tokens above %d: write a smaller number", by, highest)
		}
	}
	floor := leasekeeper.Token(0)
	if err == nil {
		floor, err = client.RaiseFloor(ctx, to)
	}
	if err != nil {
		return store.Explain(doing, err)
	}
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), floorInfo{Floor: uint64(floor), Highest: uint64(max(highest, floor))})
	}
	return console.PrintLine(cmd.OutOrStdout(), "the floor is %d: all later tokens are above it", floor)
}
