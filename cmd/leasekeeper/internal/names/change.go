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
	to := ""
	cmd := &cobra.Command{
		Use:   "transfer NAME [TOKEN]",
		Short: "Hand a name to the next waiter, or to a chosen one",
		Long: `End the lease of a name's holder and make the next waiter in the queue the holder, in one step. With TOKEN, do so only
if it is the holder's token. If nobody waits, nothing changes, and the exit code is 1.

The old holder finds out at its next renewal and may act until then: the resources that it changes must check tokens.

With --to the waiter with that holder id is next, whatever the order of the queue, and the lease of the present holder
is revoked: the name changes hands when the lease that the holder relies on has ended. If that holder does not wait,
nothing changes, and the exit code is 1.`,
		Example: `  leasekeeper transfer jobs/nightly
  leasekeeper transfer jobs/nightly --to host-2/4711/9adf57df`,
		Args: command.Between(1, 2, "a name, and a token perhaps"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(true, args)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				if to != "" {
					return transferTo(ctx, cmd, b, flags.Output, name, token, to)
				}
				doing := "transfer " + name
				transferrer, err := backend.Can[backend.Transferrer](b)
				if err != nil {
					return store.Explain(doing, noQueue(b, err))
				}
				l, _, err := store.Resume(ctx, b, name, token)
				if err == nil {
					err = transferrer.Transfer(ctx, l)
				}
				if errors.Is(err, leasekeeper.ErrInvalid) { // no program waits: that is no mistake of the caller
					return command.Failed("could not %s: %w", doing, err)
				}
				if err != nil {
					return store.Explain(doing, err)
				}
				return printChange(cmd, flags.Output, change{Name: name, Result: "transferred"}, name+" was handed to the next waiter")
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the `id` of the holder that is next")
	return cmd
}

// transferTo makes a chosen waiter the next, and revokes the lease of the present holder.
func transferTo(ctx context.Context, cmd *cobra.Command, b backend.Backend, output, name string, token backend.Token, to string) error {
	doing := "transfer " + name + " to " + to
	preferrer, err := backend.Can[backend.Preferrer](b)
	if err != nil {
		return store.Explain(doing, err)
	}
	revoker, err := backend.Can[backend.Revoker](b)
	if err != nil {
		return store.Explain(doing, err)
	}
	info, err := b.Get(ctx, name) // the tenure to revoke, before the waiter may become the holder
	if err != nil {
		return store.Explain(doing, err)
	}
	if token == 0 {
		token = info.Token
	}
	if info.Pinned != "" {
		return command.Failed("could not %s: %w: %s", doing, leasekeeper.ErrPinned, backend.Printable(info.Pinned))
	}
	err = preferrer.Prefer(ctx, name, to)
	if errors.Is(err, leasekeeper.ErrInvalid) { // it does not wait: that is no mistake of the caller
		return command.Failed("could not %s: %w", doing, err)
	}
	if err == nil {
		err = revoker.Revoke(ctx, name, token, "transferred to "+to, false)
	}
	if errors.Is(err, leasekeeper.ErrLost) && token == info.Token {
		err = nil // it has ended by itself
	}
	if err != nil {
		return store.Explain(doing, err)
	}
	return printChange(cmd, output, change{Name: name, Result: "transferring"}, name+" goes to "+to+" when the lease of its holder has ended")
}

// noQueue explains that a database cannot transfer a name in one step. It returns the errors of other backends unchanged.
func noQueue(b backend.Backend, err error) error {
	if _, notDatabase := clientOf(b, "", ""); notDatabase != nil {
		return err
	}
	return &backend.UnsupportedError{Backend: b.Scheme(), What: backend.Transfer,
		Instead: "a database cannot make the next waiter the holder in one step; choose a waiter with --to, or release the name"}
}

// change is the JSON output of the commands that change a name.
type change struct {
	Name   string `json:"name"`
	Result string `json:"result"`
}

// printChange prints c for programs, or text for people.
func printChange(cmd *cobra.Command, output string, c change, text string) error {
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
		Long: `Keep a name from expiring, from being revoked and from being transferred, until it is unpinned. A holder that is
gone keeps a pinned name forever.`,
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
				return printChange(cmd, flags.Output, change{Name: args[0], Result: "pinned"}, args[0]+" is pinned")
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why, shown to everyone who looks at the name")
	return cmd
}

func newUnpin() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:     "unpin NAME",
		Short:   "Remove the pin of a name",
		Long:    `Remove the pin of a name. The name expires again when its holder does not renew it.`,
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
				return printChange(cmd, flags.Output, change{Name: args[0], Result: "unpinned"}, args[0]+" is no longer pinned")
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
		Long: `Take a name away from its holder. The store refuses the holder's renewals, and the name is free when the lease that
the holder relies on has ended. With TOKEN, do so only if it is the holder's token.

With --now the name is free at once. The holder does not know yet and may keep acting: the resources that it changes
must check tokens.`,
		Example: `  leasekeeper revoke jobs/nightly --reason "host-1 is being replaced"`,
		Args:    command.Between(1, 2, "a name, and a token perhaps"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(true, args)
			if err != nil {
				return err
			}
			if reason == "" {
				return command.WrongUsage("no reason is given: write --reason TEXT, which the holder and the history will show")
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				revoker, err := backend.Can[backend.Revoker](b)
				if err == nil {
					err = revoker.Revoke(ctx, name, token, reason, now)
				}
				if err != nil {
					return store.Explain("revoke "+name, err)
				}
				text := name + " can no longer be renewed, and is free when its lease has ended"
				if now {
					text = name + " is free; its former holder may not know yet"
				}
				return printChange(cmd, flags.Output, change{Name: name, Result: "revoked"}, text)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why")
	cmd.Flags().BoolVar(&now, "now", false, "free the name at once")
	return cmd
}
