package names

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Check fencing tokens",
		Example: "  leasekeeper token check jobs/nightly 42",
		Args:    command.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCheck())
	return cmd
}

// tokenInfo is the JSON output of `token check`.
type tokenInfo struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	Holds bool   `json:"holds"`
	Why   string `json:"why,omitempty"` // why the token does not hold the name
}

func newTokenCheck() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:   "check NAME TOKEN",
		Short: "Check whether a token holds a name now",
		Long: `Check whether a token holds a name now. The exit code is 0 if it does, 1 if it does not, 3 if no answer came, and
4 if the store is damaged or fails otherwise.

The answer is about one moment, and may be out of date when you read it. A resource that a former holder must not
change keeps the highest token that it has seen, and compares tokens in the same step as the change.`,
		Example: `  leasekeeper token check jobs/nightly "$LEASEKEEPER_TOKEN" || exit`,
		Args:    command.Exactly(2, "a name and a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(false, args)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				info, err := b.Get(ctx, name)
				if err != nil {
					return store.Explain("check the token", err)
				}
				result := tokenInfo{Name: name, Token: uint64(token), Holds: info.Held && info.Token == token}
				text := fmt.Sprintf("token %d holds %s", token, name)
				if !result.Holds {
					result.Why = store.NotHeld(info, token)
					text = result.Why
				}
				if flags.Output == console.JSON {
					err = console.PrintJSON(cmd.OutOrStdout(), result)
				} else {
					err = console.PrintLine(cmd.OutOrStdout(), "%s", text)
				}
				if err == nil && !result.Holds {
					err = &command.Error{Code: command.ExitFailed}
				}
				return err
			})
		},
	}
	flags.Register(cmd)
	return cmd
}
