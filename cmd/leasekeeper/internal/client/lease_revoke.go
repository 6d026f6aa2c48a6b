package client

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// The results of revoking one lease.
const (
	revoked       = "revoked"
	revokeMissing = "not found"
	revokeUnknown = "unknown" // the server may or may not have revoked it
	revokeFailed  = "failed"
)

// revocation is the outcome of `lease revoke` for one id.
type revocation struct {
	ID     string `json:"id"`
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

func newLeaseRevoke() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "End leases at once and delete the keys attached to them",
		Long: `End leases at once and delete the keys attached to them. A failure for one id does not stop the others.

The exit code is 0 if all leases were revoked, 1 if one was not, and 3 if no answer came for one of them, which
may or may not have been revoked.`,
		Example: "  leasekeeper lease revoke 694d9a1b2c3d4e5f",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.WrongUsage("no lease is given: write one or more ids; `leasekeeper lease list` shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]int64, 0, len(args))
			for _, arg := range args {
				id, err := parseID(arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				results, err := c.revokeAll(ctx, ids)
				return errors.Join(printRevocations(cmd, flags.output, results), err)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// revokeAll revokes each lease and returns the outcome for each id. The error has the exit code of the command.
func (c *client) revokeAll(ctx context.Context, ids []int64) ([]revocation, error) {
	var results []revocation
	code := command.ExitDone
	for _, id := range ids {
		_, err := c.leases().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
		r := revocation{ID: formatID(id), Result: revoked}
		switch {
		case err == nil:
		case isNotFound(err):
			r.Result = revokeMissing
			r.Detail = "the lease has ended or never existed"
			code = max(code, command.ExitFailed)
		case status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded:
			r.Result = revokeUnknown
			r.Detail = c.explain("revoke it", err).Error()
			code = max(code, command.ExitUnreachable)
		default:
			r.Result = revokeFailed
			r.Detail = status.Convert(err).Message()
			code = max(code, command.ExitFailed)
		}
		results = append(results, r)
	}
	if code == command.ExitDone {
		return results, nil
	}
	return results, &command.Error{Code: code}
}

// revocationTone returns the tone of a cell in the table of revoked leases.
func revocationTone(row []string, column int) console.Tone {
	if column == 1 && row[1] != revoked {
		return console.Alert
	}
	return console.Plain
}

func printRevocations(cmd *cobra.Command, output string, results []revocation) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), results)
	}
	rows := make([][]string, 0, len(results))
	for _, r := range results {
		what := r.Result
		if r.Detail != "" {
			what += ": " + r.Detail
		}
		rows = append(rows, []string{r.ID, what})
	}
	return console.PrintTable(cmd.OutOrStdout(), rows, console.Shorten(1), console.Paint(revocationTone))
}
