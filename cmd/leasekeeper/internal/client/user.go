package client

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Add, change and remove the users of a server",
		Long: `Add, change and remove the users of a server. What a user may do follows from its roles: see "leasekeeper role".
The users are etcd's, so "etcdctl user" shows and changes the same.`,
		Example: "  leasekeeper user list",
		Args:    command.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUserList(), newUserShow(), newUserAdd(), newUserPassword(), newUserRemove(), newUserGrant(), newUserRevoke(),
		newUserQuota(), newUserSetQuota())
	return cmd
}

// userInfo describes a user in the output of the commands.
type userInfo struct {
	User  string   `json:"user"`
	Roles []string `json:"roles"`
}

func newUserList() *cobra.Command {
	return userCommand("list", "List the users and their roles", "", "  leasekeeper user list", command.NoArguments,
		func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			const doing = "list the users"
			answer, err := pb.NewAuthClient(c.conn).UserList(ctx, &pb.AuthUserListRequest{})
			if err != nil {
				return c.explain(doing, err)
			}
			users := make([]userInfo, 0, len(answer.Users))
			for _, name := range answer.Users {
				u, err := c.readUser(ctx, name)
				if err != nil {
					return c.explain(doing, err)
				}
				users = append(users, u)
			}
			return printUsers(cmd, c.flags.output, users)
		})
}

func (c *client) readUser(ctx context.Context, name string) (userInfo, error) {
	answer, err := pb.NewAuthClient(c.conn).UserGet(ctx, &pb.AuthUserGetRequest{Name: name})
	return userInfo{User: name, Roles: append([]string{}, answer.GetRoles()...)}, err
}

func printUsers(cmd *cobra.Command, output string, users []userInfo) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), users)
	}
	rows := [][]string{{"USER", "ROLES"}}
	for _, u := range users {
		rows = append(rows, []string{u.User, strings.Join(u.Roles, ", ")})
	}
	return console.PrintTable(cmd.OutOrStdout(), rows, console.Shorten(1))
}

func newUserShow() *cobra.Command {
	return userCommand("show NAME", "Show the roles of a user", "", "  leasekeeper user show alice", command.Exactly(1, "the name of a user"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			u, err := c.readUser(ctx, args[0])
			if err != nil {
				return c.explain("show the user", err)
			}
			if c.flags.output == console.JSON {
				return console.PrintJSON(cmd.OutOrStdout(), u)
			}
			return printUsers(cmd, c.flags.output, []userInfo{u})
		})
}

func newUserAdd() *cobra.Command {
	var flags clientFlags
	noPassword := false
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user",
		Long: `Add a user. The first line of standard input is its password. A user without a password is known by the common name
of its certificate: see --client-ca of "leasekeeper serve".

With exit code 3 the user may or may not have been added.`,
		Example: `  leasekeeper user add alice < alice.password
  leasekeeper user add batch-1 --no-password`,
		Args: command.Exactly(1, "the name of a user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &pb.AuthUserAddRequest{Name: args[0], Options: &authpb.UserAddOptions{NoPassword: noPassword}}
			if !noPassword {
				var err error
				if req.Password, err = newPassword(cmd); err != nil {
					return err
				}
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				_, err := pb.NewAuthClient(c.conn).UserAdd(ctx, req)
				return c.reportAccess(cmd, "add the user", err, change{User: args[0], Result: "added"}, "%s is a user now", args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&noPassword, "no-password", false, "add a user that cannot log in by a password")
	flags.register(cmd)
	return cmd
}

func newUserPassword() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "password NAME",
		Short: "Change the password of a user",
		Long: `Change the password of a user. The first line of standard input is the new one. The tokens that the user got for the
former password end.

With exit code 3 the password may or may not have been changed.`,
		Example: "  leasekeeper user password alice < alice.password",
		Args:    command.Exactly(1, "the name of a user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := newPassword(cmd)
			if err != nil {
				return err
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				_, err := pb.NewAuthClient(c.conn).UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: args[0], Password: password})
				return c.reportAccess(cmd, "change the password", err, change{User: args[0], Result: "changed"}, "%s has a new password", args[0])
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func newUserRemove() *cobra.Command {
	return userCommand("remove NAME", "Remove a user", `Remove a user. Its tokens end, and its open streams of renewals and claims are refused.

With exit code 3 the user may or may not have been removed.`,
		"  leasekeeper user remove alice", command.Exactly(1, "the name of a user"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			_, err := pb.NewAuthClient(c.conn).UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: args[0]})
			return c.reportAccess(cmd, "remove the user", err, change{User: args[0], Result: "removed"}, "%s is no user any more", args[0])
		})
}

func newUserGrant() *cobra.Command {
	return userCommand("grant NAME ROLE", "Give a role to a user", `Give a role to a user.

With exit code 3 the user may or may not have the role.`,
		"  leasekeeper user grant alice jobs", command.Exactly(2, "the name of a user, and a role"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			_, err := pb.NewAuthClient(c.conn).UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: args[0], Role: args[1]})
			return c.reportAccess(cmd, "give the role", err, change{User: args[0], Role: args[1], Result: "granted"}, "%s has the role %s now", args[0], args[1])
		})
}

func newUserRevoke() *cobra.Command {
	return userCommand("revoke NAME ROLE", "Take a role from a user", `Take a role from a user.

With exit code 3 the user may or may not have the role.`,
		"  leasekeeper user revoke alice jobs", command.Exactly(2, "the name of a user, and a role"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			_, err := pb.NewAuthClient(c.conn).UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: args[0], Role: args[1]})
			return c.reportAccess(cmd, "take the role", err, change{User: args[0], Role: args[1], Result: "revoked"}, "%s has the role %s no longer", args[0], args[1])
		})
}

// userCommand returns a command with the flags of a client and no others. Without a long text its help shows the short one.
func userCommand(use, short, long, example string, args cobra.PositionalArgs, work func(context.Context, *client, *cobra.Command, []string) error) *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error { return work(ctx, c, cmd, args) })
		},
	}
	flags.register(cmd)
	return cmd
}
