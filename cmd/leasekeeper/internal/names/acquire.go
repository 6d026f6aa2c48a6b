package names

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// acquired is the JSON output of `acquire`.
type acquired struct {
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
	TTLMS  int64  `json:"ttl_ms"`
	Holder string `json:"holder"`
}

// acquireFlags are the flags of `acquire`.
type acquireFlags struct {
	store  store.Flags
	wait   store.WaitFlags
	holder string
	card   string
}

func newAcquire() *cobra.Command {
	var flags acquireFlags
	cmd := &cobra.Command{
		Use:   "acquire NAME",
		Short: "Acquire a lease for a script, and print its token",
		Long: `Acquire a lease, waiting in the queue if the name is held, and print its fencing token. The lease lasts for its TTL
after this command has ended. Only the script can renew it, with "leasekeeper renew". If the script runs a single
command under the lease, use "leasekeeper run" instead: it renews the lease, and stops the command in time.

The exit code is 1 (or that of --conflict-exit-code) if the name is not free, 3 if no answer came, and
4 if the store is damaged or fails otherwise.`,
		Example: `  TOKEN=$(leasekeeper acquire jobs/nightly --ttl 10m --nonblock) || exit
  ...
  leasekeeper release jobs/nightly "$TOKEN"`,
		Args: store.OneName,
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args[0]) },
	}
	flags.store.Register(cmd, "ttl")
	flags.wait.Register(cmd)
	cmd.Flags().StringVar(&flags.holder, "holder", "", "the holder's `id` (default: host, process and a random number)")
	cmd.Flags().StringVar(&flags.card, "card", "", "`text` about the holder, shown to everyone who looks at the name")
	return cmd
}

func (f *acquireFlags) run(cmd *cobra.Command, name string) error {
	if err := f.store.Complete(cmd); err != nil {
		return err
	}
	if err := f.wait.Complete(); err != nil {
		return err
	}
	ttl, err := settings.ParseDuration("ttl", f.store.TTL)
	if err != nil {
		return err
	}
	options := []leasekeeper.KeeperOption{leasekeeper.WithTTL(ttl), leasekeeper.WithCard(f.card)}
	if f.holder != "" {
		options = append(options, leasekeeper.WithHolder(f.holder))
	}
	ctx, interrupted := store.Interruptible(cmd.Context())
	opening, cancel := context.WithTimeout(ctx, f.store.Timeout)
	defer cancel()
	b, err := backend.Open(opening, f.store.Store)
	if err != nil {
		if by := interrupted.End(); by != nil {
			return store.DieOf(by)
		}
		return store.Explain("open the store", err)
	}
	k, err := leasekeeper.New(b, options...)
	if err != nil {
		return store.Explain("use the store", err)
	}
	l, err := f.wait.Acquire(ctx, k, name)
	by := interrupted.End()
	if err == nil && by == nil {
		// The keeper is not closed, since that would release the lease.
		if err = f.renewAndPrint(cmd, b, l); err == nil {
			return nil
		}
	}
	// Closing leaves the queue, or releases the lease, whose token the user has not seen.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.AskLimit)
	defer cancel()
	k.Shutdown(closing)
	if by != nil {
		return store.DieOf(by)
	}
	return asTrouble(store.Explain("acquire "+name, err))
}

// asTrouble replaces exit code 1 of other failures, because in `acquire` it says that the name is not free. For example,
// the lease may have ended at once.
func asTrouble(err error) error {
	var known *command.Error
	if errors.As(err, &known) && known.Code == command.ExitFailed && !known.Busy {
		return &command.Error{Code: command.ExitTrouble, Cause: err}
	}
	return err
}

// renewAndPrint renews the lease, because a part of its TTL may have passed, and prints its token.
func (f *acquireFlags) renewAndPrint(cmd *cobra.Command, b backend.Backend, l *leasekeeper.Lease) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.store.Timeout)
	defer cancel()
	var renewal backend.Renewal
	err := b.Renew(ctx, []backend.Lease{l.Raw()}, func(_ int, r backend.Renewal) { renewal = r })
	if err == nil {
		err = renewal.Err
	}
	if err != nil {
		return store.Explain("keep "+l.Name()+" after it was acquired", err)
	}
	result := acquired{Name: l.Name(), Token: uint64(l.Token()), TTLMS: renewal.TTL.Milliseconds(), Holder: l.Holder().ID}
	if f.store.Output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), result)
	}
	return console.PrintLine(cmd.OutOrStdout(), "%d", result.Token)
}
