package names

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

func newTransfer() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:   "transfer NAME [TOKEN]",
		Short: "Hand a name on to the next in line",
		Long: `End the lease of a name's holder and make the next in line the holder, in one step. With TOKEN only
if that is the holder's. If nobody stands in line nothing happens, and the exit code is 1. The old holder learns
of it with its next renewal, and may act until then: whatever it changes must check tokens.`,
		Example: "  leasekeeper transfer jobs/nightly",
		Args:    command.Between(1, 2, "a name, and a token perhaps"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(true, args)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				doing := "transfer " + name
				transferrer, err := backend.Can[backend.Transferrer](b)
				if err != nil {
					return store.Explain(doing, noLine(b, err))
				}
				l, _, err := store.Resume(ctx, b, name, token)
				if err == nil {
					err = transferrer.Transfer(ctx, l)
				}
				if errors.Is(err, leasekeeper.ErrInvalid) { // nobody stands in line: that is no mistake of the caller
					return command.Failed("could not %s: %w", doing, err)
				}
				if err != nil {
					return store.Explain(doing, err)
				}
				return tellChange(cmd, flags.Output, change{Name: name, Result: "transferred"}, name+" was handed on")
			})
		},
	}
	flags.Register(cmd)
	return cmd
}

// noLine says why a database cannot hand a name on.
func noLine(b backend.Backend, err error) error {
	if _, notDatabase := clientOf(b, "", ""); notDatabase != nil {
		return err
	}
	return &backend.UnsupportedError{Backend: b.Scheme(), What: backend.Transfer,
		Instead: "a database keeps no line of who waits; release the name, and one of them takes it"}
}

// change is what a command that changes something tells programs.
type change struct {
	Name   string `json:"name"`
	Result string `json:"result"`
}

func tellChange(cmd *cobra.Command, output string, c change, text string) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), c)
	}
	return console.PrintLine(cmd.OutOrStdout(), "%s", text)
}

func newPin() *cobra.Command {
	var flags store.Flags
	reason := ""
	cmd := &cobra.Command{
		Use:   "pin NAME",
		Short: "Keep a name with its holder",
		Long: `Keep a name from expiring, from being revoked and from being handed on, until it is unpinned. A
holder that is gone keeps a pinned name for ever.`,
		Example: `  leasekeeper pin jobs/nightly --reason "we are looking into the last run"`,
		Args:    store.OneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				pinner, err := backend.Can[backend.Pinner](b)
				if err == nil {
					err = pinner.Pin(ctx, args[0], reason)
				}
				if err != nil {
					return store.Explain("pin "+args[0], err)
				}
				return tellChange(cmd, flags.Output, change{Name: args[0], Result: "pinned"}, args[0]+" is pinned")
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why, shown to everybody")
	return cmd
}

func newUnpin() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:     "unpin NAME",
		Short:   "Let a pinned name pass on again",
		Long:    `Let a pinned name pass on again: it expires when its holder does not renew it.`,
		Example: "  leasekeeper unpin jobs/nightly",
		Args:    store.OneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				pinner, err := backend.Can[backend.Pinner](b)
				if err == nil {
					err = pinner.Unpin(ctx, args[0])
				}
				if err != nil {
					return store.Explain("unpin "+args[0], err)
				}
				return tellChange(cmd, flags.Output, change{Name: args[0], Result: "unpinned"}, args[0]+" is not pinned any more")
			})
		},
	}
	flags.Register(cmd)
	return cmd
}

func newRevoke() *cobra.Command {
	var flags store.Flags
	reason, now := "", false
	cmd := &cobra.Command{
		Use:   "revoke NAME [TOKEN]",
		Short: "Take a name away from its holder",
		Long: `Take a name away from its holder: its renewals are refused, and the name is free when what it was
promised has ended. With TOKEN only if that is the holder's. With --now the name is free at once, although its
holder does not know yet and may go on acting: whatever it changes must check tokens.`,
		Example: `  leasekeeper revoke jobs/nightly --reason "host-1 is being replaced"`,
		Args:    command.Between(1, 2, "a name, and a token perhaps"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(true, args)
			if err != nil {
				return err
			}
			if reason == "" {
				return command.WrongUsage("why? Write --reason TEXT: the holder and the history will show it")
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				revoker, err := backend.Can[backend.Revoker](b)
				if err == nil {
					err = revoker.Revoke(ctx, name, token, reason, now)
				}
				if err != nil {
					return store.Explain("revoke "+name, err)
				}
				text := name + " is not renewed any more, and free when its lease has run out"
				if now {
					text = name + " was taken from its holder, which may not know yet"
				}
				return tellChange(cmd, flags.Output, change{Name: name, Result: "revoked"}, text)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why")
	cmd.Flags().BoolVar(&now, "now", false, "free the name at once")
	return cmd
}
