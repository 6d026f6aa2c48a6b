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

// lasting is what `renew` tells programs.
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
		Long: `Renew the lease that "leasekeeper acquire" took: from now on it lives for its whole TTL again. The
exit code is 1 if the lease has ended: stop at once then. It is 3 if no answer came: then it may or may not have
been renewed, and must be renewed again before its TTL is over.`,
		Example: `  leasekeeper renew jobs/nightly "$TOKEN" || exit`,
		Args:    command.Exactly(2, "a name and a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := store.NameAndToken(false, args)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				// The length is counted from before the first send, as everywhere.
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
		Short: "Give back a lease that a script holds",
		Long: `Give back the lease that "leasekeeper acquire" took. The exit code is 1 if it had ended before: somebody
else may have held the name while the script went on.`,
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
				return tellChange(cmd, flags.Output, change{Name: name, Result: "released"}, name+" is free")
			})
		},
	}
	flags.Register(cmd)
	return cmd
}
