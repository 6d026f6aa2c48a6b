package client

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newRole() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "role",
		Short: "Say what users with a role may do",
		Long: `Say what users with a role may do. A role has rights over the names with a prefix, and permissions for keys of etcd's
API. The permissions are etcd's, so "etcdctl role" shows and changes the same; it does not show rights over names.`,
		Example: "  leasekeeper role list",
		Args:    command.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRoleList(), newRoleShow(), newRoleAdd(), newRoleRemove(), newRoleGrant(), newRoleRevoke())
	return cmd
}

func newRoleList() *cobra.Command {
	return userCommand("list", "List the roles", "", "  leasekeeper role list", command.NoArguments,
		func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			answer, err := pb.NewAuthClient(c.conn).RoleList(ctx, &pb.AuthRoleListRequest{})
			if err != nil {
				return c.explain("list the roles", err)
			}
			if c.flags.output == console.JSON {
				return console.PrintJSON(cmd.OutOrStdout(), append([]string{}, answer.Roles...))
			}
			rows := [][]string{{"ROLE"}}
			for _, name := range answer.Roles {
				rows = append(rows, []string{name})
			}
			return console.PrintTable(cmd.OutOrStdout(), rows)
		})
}

// roleInfo describes a role in the output of the commands.
type roleInfo struct {
	Role  string         `json:"role"`
	Names []namesGranted `json:"names"`
	Keys  []keysGranted  `json:"keys"`
}

// namesGranted are rights over the names with a prefix.
type namesGranted struct {
	Prefix string   `json:"prefix"`
	Rights []string `json:"rights"`
}

// keysGranted is a permission for a key, or for the keys of a range.
type keysGranted struct {
	Key        string `json:"key"`
	RangeEnd   string `json:"range_end,omitempty"`
	Permission string `json:"permission"`
}

func newRoleShow() *cobra.Command {
	return userCommand("show ROLE", "Show what a role permits", "", "  leasekeeper role show jobs", command.Exactly(1, "a role"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			info, err := c.readRole(ctx, args[0])
			if err != nil {
				return c.explain("show the role", err)
			}
			if c.flags.output == console.JSON {
				return console.PrintJSON(cmd.OutOrStdout(), info)
			}
			rows := [][]string{{"WHAT", "PERMITS"}}
			for _, n := range info.Names {
				rows = append(rows, []string{"names " + n.Prefix + "…", strings.Join(n.Rights, ", ")})
			}
			for _, k := range info.Keys {
				rows = append(rows, []string{k.words(), k.Permission})
			}
			return console.PrintTable(cmd.OutOrStdout(), rows)
		})
}

// words says for which keys a permission is.
func (k keysGranted) words() string {
	switch {
	case k.RangeEnd == "":
		return "key " + k.Key
	case k.Key == "\x00" && k.RangeEnd == "\x00":
		return "all keys"
	case k.RangeEnd == prefixEnd(k.Key):
		return "keys " + k.Key + "…"
	case k.RangeEnd == "\x00":
		return "keys from " + k.Key + " on"
	}
	return "keys from " + k.Key + " to before " + k.RangeEnd
}

// readRole reads a role. An etcd has no rights over names.
func (c *client) readRole(ctx context.Context, role string) (roleInfo, error) {
	info := roleInfo{Role: role, Names: []namesGranted{}, Keys: []keysGranted{}}
	answer, err := pb.NewAuthClient(c.conn).RoleGet(ctx, &pb.AuthRoleGetRequest{Role: role})
	if err != nil {
		return info, err
	}
	for _, p := range answer.Perm {
		info.Keys = append(info.Keys, keysGranted{string(p.Key), string(p.RangeEnd), strings.ToLower(p.PermType.String())})
	}
	rights, err := leasekeeperv1.NewLeasekeeperClient(c.conn).ListRights(ctx, &leasekeeperv1.ListRightsRequest{Role: role})
	if status.Code(err) == codes.Unimplemented {
		return info, nil
	}
	for _, r := range rights.GetRoles() {
		for _, over := range r.Rights {
			n := namesGranted{Prefix: over.Prefix, Rights: []string{}}
			for _, right := range over.Rights {
				n.Rights = append(n.Rights, strings.ToLower(right.String()))
			}
			info.Names = append(info.Names, n)
		}
	}
	return info, err
}

func newRoleAdd() *cobra.Command {
	return userCommand("add ROLE", "Add a role", `Add a role, which permits nothing yet.

With exit code 3 the role may or may not have been added.`, "  leasekeeper role add jobs", command.Exactly(1, "a role"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			_, err := pb.NewAuthClient(c.conn).RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: args[0]})
			return c.reportAccess(cmd, "add the role", err, change{Role: args[0], Result: "added"}, "%s is a role now", args[0])
		})
}

func newRoleRemove() *cobra.Command {
	return userCommand("remove ROLE", "Remove a role", `Remove a role, also from the users that have it.

With exit code 3 the role may or may not have been removed.`, "  leasekeeper role remove jobs", command.Exactly(1, "a role"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			_, err := pb.NewAuthClient(c.conn).RoleDelete(ctx, &pb.AuthRoleDeleteRequest{Role: args[0]})
			return c.reportAccess(cmd, "remove the role", err, change{Role: args[0], Result: "removed"}, "%s is no role any more", args[0])
		})
}

// granting are the flags of `role grant` and `role revoke`.
type granting struct {
	names, key, keys string
	rights           []string
	permission       string
}

func (g *granting) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.names, "name-prefix", "", "the `prefix` of names; empty for all names")
	cmd.Flags().StringVar(&g.keys, "key-prefix", "", "the `prefix` of keys of etcd's API; empty for all keys")
	cmd.Flags().StringVar(&g.key, "single-key", "", "a single `key` of etcd's API")
}

// check requires one of the flags that say what is granted.
func (g *granting) check(cmd *cobra.Command) error {
	given := 0
	for _, name := range []string{"name-prefix", "key-prefix", "single-key"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	if given != 1 {
		return command.WrongUsage("write one of --name-prefix, --key-prefix and --single-key: for what the role has a right or a permission")
	}
	return nil
}

func (g *granting) overNames(cmd *cobra.Command) bool { return cmd.Flags().Changed("name-prefix") }

// keyRange returns the range of --single-key or --key-prefix as etcd has it.
func (g *granting) keyRange(cmd *cobra.Command) (key, end []byte) {
	switch {
	case cmd.Flags().Changed("single-key"):
		return []byte(g.key), nil
	case g.keys == "":
		return []byte{0}, []byte{0}
	}
	return []byte(g.keys), []byte(prefixEnd(g.keys))
}

// prefixEnd returns the first key after all keys with a prefix; "\x00", which is the end of all keys, if there is none.
func prefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return "\x00"
}

// parsedRights returns the rights of --right.
func (g *granting) parsedRights() ([]leasekeeperv1.NameRight, error) {
	var rights []leasekeeperv1.NameRight
	for _, text := range g.rights {
		right := leasekeeperv1.NameRight(leasekeeperv1.NameRight_value[strings.ToUpper(text)])
		if right == leasekeeperv1.NameRight_NAME_RIGHT_UNSPECIFIED || text != strings.ToLower(text) {
			return nil, command.WrongUsage("--right %s is unknown: write hold, watch or administer, or several with commas between them", text)
		}
		if !slices.Contains(rights, right) {
			rights = append(rights, right)
		}
	}
	return rights, nil
}

func newRoleGrant() *cobra.Command {
	var flags clientFlags
	var g granting
	cmd := &cobra.Command{
		Use:   "grant ROLE",
		Short: "Give a right over names or keys to a role",
		Long: `Give a right over names or keys to a role. A prefix ends wherever its text ends: jobs is a prefix of jobs2 as well.

Rights over names: hold to claim, renew and release; watch to see holders, waiters and history; administer to revoke,
pin and transfer. Permissions for keys: read, write or readwrite.

With exit code 3 the role may or may not have the right.`,
		Example: `  leasekeeper role grant jobs --name-prefix jobs/ --right hold,watch
  leasekeeper role grant config --key-prefix config/ --permission read`,
		Args: command.Exactly(1, "a role"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := g.check(cmd); err != nil {
				return err
			}
			rights, err := g.parsedRights()
			if err != nil {
				return err
			}
			kind, known := authpb.Permission_Type_value[strings.ToUpper(g.permission)]
			switch {
			case g.overNames(cmd) && (len(rights) == 0 || g.permission != ""):
				return command.WrongUsage("--name-prefix needs --right hold, watch or administer, and no --permission")
			case !g.overNames(cmd) && (!known || len(rights) > 0):
				return command.WrongUsage("--key-prefix and --single-key need --permission read, write or readwrite, and no --right")
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				if g.overNames(cmd) {
					_, err = leasekeeperv1.NewLeasekeeperClient(c.conn).GrantRight(ctx, &leasekeeperv1.GrantRightRequest{Role: args[0], Prefix: g.names, Rights: rights})
				} else {
					key, end := g.keyRange(cmd)
					_, err = pb.NewAuthClient(c.conn).RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{
						Name: args[0], Perm: &authpb.Permission{PermType: authpb.Permission_Type(kind), Key: key, RangeEnd: end},
					})
				}
				return c.reportAccess(cmd, "give the right", err, change{Role: args[0], Result: "granted"}, "%s has the right now", args[0])
			})
		},
	}
	g.register(cmd)
	cmd.Flags().StringSliceVar(&g.rights, "right", nil, "the `rights` over the names, separated by commas: hold, watch, administer")
	cmd.Flags().StringVar(&g.permission, "permission", "", "the `permission` for the keys: read, write or readwrite")
	flags.register(cmd)
	return cmd
}

func newRoleRevoke() *cobra.Command {
	var flags clientFlags
	var g granting
	cmd := &cobra.Command{
		Use:   "revoke ROLE",
		Short: "Take a right over names or keys from a role",
		Long: `Take a right over names or keys from a role. The prefix must be the one that was given. Without --right the role
loses all rights over the names. A user that loses the right to hold a name cannot renew it from then on.

With exit code 3 the role may or may not have the right.`,
		Example: `  leasekeeper role revoke jobs --name-prefix jobs/ --right watch
  leasekeeper role revoke config --key-prefix config/`,
		Args: command.Exactly(1, "a role"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := g.check(cmd); err != nil {
				return err
			}
			rights, err := g.parsedRights()
			if err != nil {
				return err
			}
			if !g.overNames(cmd) && len(rights) > 0 {
				return command.WrongUsage("--right is for --name-prefix: a permission for keys is taken as a whole")
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				if g.overNames(cmd) {
					_, err = leasekeeperv1.NewLeasekeeperClient(c.conn).RevokeRight(ctx, &leasekeeperv1.RevokeRightRequest{Role: args[0], Prefix: g.names, Rights: rights})
				} else {
					key, end := g.keyRange(cmd)
					_, err = pb.NewAuthClient(c.conn).RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: args[0], Key: key, RangeEnd: end})
				}
				return c.reportAccess(cmd, "take the right", err, change{Role: args[0], Result: "revoked"}, "%s has the right no longer", args[0])
			})
		},
	}
	g.register(cmd)
	cmd.Flags().StringSliceVar(&g.rights, "right", nil, "the `rights` over the names, separated by commas: hold, watch, administer")
	flags.register(cmd)
	return cmd
}
