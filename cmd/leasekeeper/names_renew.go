package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
)

// lasting is what `renew` tells programs.
type lasting struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	TTLMS int64  `json:"ttl_ms"`
}

func newRenew() *cobra.Command {
	var flags storeFlags
	cmd := &cobra.Command{
		Use:   "renew NAME TOKEN",
		Short: "Renew a lease that a script holds",
		Long: `Renew the lease that "leasekeeper acquire" took: from now on it lives for its whole TTL again. The
exit code is 1 if the lease has ended: stop at once then. It is 3 if no answer came: then it may or may not have
been renewed, and must be renewed again before its TTL is over.`,
		Example: `  leasekeeper renew jobs/nightly "$TOKEN" || exit`,
		Args:    exactly(2, "a name and a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := nameAnd(false, args)
			if err != nil {
				return err
			}
			return withStore(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				// The length is counted from before the first send, as everywhere.
				sent := time.Now()
				_, grant, err := tenancy(ctx, b, name, token)
				if err != nil {
					return explainStore("renew the lease", err)
				}
				if flags.output == outputJSON {
					return printJSON(cmd.OutOrStdout(), lasting{name, uint64(token), grant.TTL.Milliseconds()})
				}
				return printLine(cmd.OutOrStdout(), "%s is held for %v from now", name, (grant.TTL - time.Since(sent)).Truncate(time.Millisecond))
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func newRelease() *cobra.Command {
	var flags storeFlags
	cmd := &cobra.Command{
		Use:   "release NAME TOKEN",
		Short: "Give back a lease that a script holds",
		Long: `Give back the lease that "leasekeeper acquire" took. The exit code is 1 if it had ended before: somebody
else may have held the name while the script went on.`,
		Example: `  leasekeeper release jobs/nightly "$TOKEN"`,
		Args:    exactly(2, "a name and a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, token, err := nameAnd(false, args)
			if err != nil {
				return err
			}
			return withStore(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				l, _, err := tenancy(ctx, b, name, token)
				if err == nil {
					err = b.Release(ctx, l)
				}
				if err != nil {
					return explainStore("release "+name, err)
				}
				return tellChange(cmd, flags.output, change{Name: name, Result: "released"}, name+" is free")
			})
		},
	}
	flags.register(cmd)
	return cmd
}
