package client

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newLease() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lease",
		Short:   "Grant, list, show and revoke leases",
		Example: "  leasekeeper lease list",
		Args:    command.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLeaseGrant(), newLeaseList(), newLeaseShow(), newLeaseRevoke())
	return cmd
}

// leaseInfo describes a lease in the output of the commands.
type leaseInfo struct {
	ID               string   `json:"id"` // hexadecimal, as etcdctl writes it
	TTLSeconds       int64    `json:"ttl_seconds"`
	RemainingSeconds int64    `json:"remaining_seconds"`
	Keys             []string `json:"keys"`
}

// readLease asks the server for one lease. It returns nil without an error if no lease has this id.
func (c *client) readLease(ctx context.Context, id int64) (*leaseInfo, error) {
	answer, err := c.leases().LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if isNotFound(err) || err == nil && answer.TTL < 0 && answer.GrantedTTL == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := &leaseInfo{
		ID:               formatID(id),
		TTLSeconds:       answer.GrantedTTL,
		RemainingSeconds: max(answer.TTL, 0), // negative if the lease is overdue and about to end
		Keys:             []string{},
	}
	for _, key := range answer.Keys {
		info.Keys = append(info.Keys, console.Readable(key))
	}
	return info, nil
}

func isNotFound(err error) bool { return err != nil && status.Code(err) == codes.NotFound }

// formatID formats a lease id as etcdctl does.
func formatID(id int64) string { return fmt.Sprintf("%016x", id) }

// parseID reads a lease id in the form that etcdctl prints.
func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil || id == 0 {
		return 0, command.WrongUsage("%q is not a lease id: write it in hexadecimal, as `leasekeeper lease list` prints it", text)
	}
	return id, nil
}

func seconds(n int64) string { return (time.Duration(n) * time.Second).String() }
