package names

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// lasting is the JSON output of `renew`.
type lasting struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	TTLMS int64  `json:"ttl_ms"`
}

func newRenew() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:   "renew NAME TOKEN",
		Short: "Renew a lease that a script holds",
		Long: `Renew the lease that "leasekeeper acquire" acquired: it lasts for its whole TTL from now on.

The exit code is 1 if the lease has ended: the script must stop at once. It is 3 if no answer came: the lease may or
may not have been renewed, so renew it again before its TTL is over.`,
		Example: `  leasekeeper renew jobs/nightly "$TOKEN" || exit`,
		Args:    command.Exactly(2, "a name and a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(false, args)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				// A holder counts the TTL from before the first send.
				sent := time.Now()
				_, grant, err := store.Resume(ctx, b, name, token)
				if err != nil {
					return store.Explain("renew the lease", err)
				}
				if flags.Output == console.JSON {
					return console.PrintJSON(cmd.OutOrStdout(), lasting{name, uint64(token), grant.TTL.Milliseconds()})
				}
				return console.PrintLine(cmd.OutOrStdout(), "%s is held for %v from now", name, (grant.TTL - time.Since(sent)).Truncate(time.Millisecond))
			})
		},
	}
	flags.Register(cmd)
	return cmd
}

func newRelease() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:   "release NAME TOKEN",
		Short: "Release a lease that a script holds",
		Long: `Release the lease that "leasekeeper acquire" acquired. The exit code is 1 if the lease had ended before: another
process may have held the name while the script went on.`,
		Example: `  leasekeeper release jobs/nightly "$TOKEN"`,
		Args:    command.Exactly(2, "a name and a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(false, args)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				l, _, err := store.Resume(ctx, b, name, token)
				if err == nil {
					err = b.Release(ctx, l)
				}
				if err != nil {
					return store.Explain("release "+name, err)
				}
				return printChange(cmd, flags.Output, change{Name: name, Result: "released"}, name+" is free")
			})
		},
	}
	flags.Register(cmd)
	return cmd
}
