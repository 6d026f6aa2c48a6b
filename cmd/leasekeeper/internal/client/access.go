package client

import (
	"context"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newAccess() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "access",
		Short:   "Require a user for each request, or no longer",
		Example: "  leasekeeper access status",
		Args:    command.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAccessStatus(), newAccessUnowned(), newAccessEnable(), newAccessDisable())
	return cmd
}

// accessInfo is the JSON output of the commands about access.
type accessInfo struct {
	Enabled  bool   `json:"enabled"`
	Revision uint64 `json:"revision,omitempty"` // of users and roles; it grows with each change
}

func newAccessStatus() *cobra.Command {
	return userCommand("status", "Show whether each request needs a user", "", "  leasekeeper access status", command.NoArguments,
		func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			answer, err := pb.NewAuthClient(c.conn).AuthStatus(ctx, &pb.AuthStatusRequest{})
			if err != nil {
				return c.explain("show whether access is enabled", err)
			}
			info := accessInfo{answer.Enabled, answer.AuthRevision}
			if c.flags.output == console.JSON {
				return console.PrintJSON(cmd.OutOrStdout(), info)
			}
			if !info.Enabled {
				return console.PrintLine(cmd.OutOrStdout(), "access is not enabled: every client may do everything")
			}
			return console.PrintLine(cmd.OutOrStdout(), "access is enabled: each request needs a user")
		})
}

func newAccessEnable() *cobra.Command {
	return userCommand("enable", "Require a user for each request from now on", `Require a user for each request from now on. The user root with the role root must exist: it may do everything.
Give the clients their users first, because the server then refuses requests without one. The command first lists
leases that no user owns: see "leasekeeper access unowned".

With exit code 3 access may or may not have been enabled.`, `  echo secret | leasekeeper user add root
  leasekeeper user grant root root
  leasekeeper access enable`, command.NoArguments,
		func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			if err := c.showUnowned(ctx, cmd); err != nil {
				return err
			}
			_, err := pb.NewAuthClient(c.conn).AuthEnable(ctx, &pb.AuthEnableRequest{})
			return c.reportAccess(cmd, "enable access", err, change{Result: "enabled"}, "access is enabled: each request needs a user")
		})
}

func newAccessDisable() *cobra.Command {
	return userCommand("disable", "Let every client do everything again", `Let every client do everything again. Users and roles stay.

With exit code 3 access may or may not have been disabled.`,
		"  leasekeeper access disable --user root --password-file root.password", command.NoArguments,
		func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			_, err := pb.NewAuthClient(c.conn).AuthDisable(ctx, &pb.AuthDisableRequest{})
			return c.reportAccess(cmd, "disable access", err, change{Result: "disabled"}, "access is disabled: every client may do everything")
		})
}

// change is the JSON output of a command that changes users, roles or access.
type change struct {
	User   string `json:"user,omitempty"`
	Role   string `json:"role,omitempty"`
	Result string `json:"result"`
}

// reportAccess prints what a change has done, or explains why it was not made.
func (c *client) reportAccess(cmd *cobra.Command, doing string, err error, done change, format string, args ...any) error {
	switch {
	case err != nil:
		return c.explain(doing, err)
	case c.flags.output == console.JSON:
		return console.PrintJSON(cmd.OutOrStdout(), done)
	}
	return console.PrintLine(cmd.OutOrStdout(), format, args...)
}
