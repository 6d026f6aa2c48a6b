package client

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// The values of a limit that are no number, for the server and for operators.
const (
	noLimit, noLimitWord          = -1, "none"
	limitOfAll, limitOfAllWord    = -2, "default"
	shownUnowned                  = 20            // leases that `access enable` shows
	unownedPage, maxUnownedLeases = 1000, 100_000 // in one request, and in all
)

func (c *client) names() leasekeeperv1.LeasekeeperClient {
	return leasekeeperv1.NewLeasekeeperClient(c.conn)
}

// limitFlag is a limit of a quota as a flag.
type limitFlag struct{ most *int64 }

// String is part of pflag.Value.
func (l *limitFlag) String() string {
	if l.most == nil {
		return ""
	}
	return limitWord(l.most)
}

// Type is part of pflag.Value.
func (l *limitFlag) Type() string { return "limit" }

// Set is part of pflag.Value.
func (l *limitFlag) Set(text string) error {
	most := int64(0)
	switch text {
	case noLimitWord:
		most = noLimit
	case limitOfAllWord:
		most = limitOfAll
	default:
		var err error
		if most, err = strconv.ParseInt(text, 10, 64); err != nil || most < 0 {
			return command.WrongUsage("%q is no limit: write a number, none or default", text)
		}
	}
	l.most = &most
	return nil
}

func limitWord(most *int64) string {
	switch {
	case most == nil, *most == limitOfAll:
		return limitOfAllWord
	case *most == noLimit:
		return noLimitWord
	}
	return strconv.FormatInt(*most, 10)
}

func newUserSetQuota() *cobra.Command {
	var flags clientFlags
	var leases, names, watchers, requests limitFlag
	cmd := &cobra.Command{
		Use:   "set-quota [NAME]",
		Short: "Limit what a user may have",
		Long: `Limit how many leases, names and watchers a user may have, and how many requests it may send. Without NAME, set the
limits of all users that have none of their own. A limit is a number, "none" for no limit, or "default" for the limit
of all users. Limits that are not given stay as they are.

The limits count while access is enabled, and never for users with the role root. The members count leases and names
together, and watchers and requests each for itself. Renewals and releases count against no limit. A user that has more
than a new limit keeps it.

With exit code 3 the limits may or may not have been set.`,
		Example: `  leasekeeper user set-quota --leases 1000 --requests 200
  leasekeeper user set-quota alice --names 10 --leases default`,
		Args: command.Between(0, 1, "at most the name of a user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &leasekeeperv1.SetQuotaRequest{Limits: &leasekeeperv1.Limits{
				Leases: leases.most, Names: names.most, Watchers: watchers.most, RequestsPerSecond: requests.most,
			}}
			if leases.most == nil && names.most == nil && watchers.most == nil && requests.most == nil {
				return command.WrongUsage("no limit is given: write at least one of --leases, --names, --watchers and --requests")
			}
			whose := "all users without limits of their own"
			if len(args) > 0 {
				req.User, whose = args[0], args[0]
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				_, err := c.names().SetQuota(ctx, req)
				return c.reportAccess(cmd, "set the quota", err, change{User: req.User, Result: "set"}, "the quota of %s is set", whose)
			})
		},
	}
	cmd.Flags().Var(&leases, "leases", "leases that the user was granted, those of names included")
	cmd.Flags().Var(&names, "names", "names that the user holds or waits for")
	cmd.Flags().Var(&watchers, "watchers", "watchers on each member")
	cmd.Flags().Var(&requests, "requests", "requests per second on each member")
	flags.register(cmd)
	return cmd
}

// quotaInfo is the JSON output of `user quota`.
type quotaInfo struct {
	User   string      `json:"user,omitempty"` // empty for all users
	Limits []limitInfo `json:"limits"`
}

// limitInfo is one limit.
type limitInfo struct {
	Resource string `json:"resource"`
	Limit    string `json:"limit"`          // of this user: a number, "none" or "default"
	Default  string `json:"default"`        // of all users: a number or "none"
	Owns     *int64 `json:"owns,omitempty"` // only for what the members count together
}

func newUserQuota() *cobra.Command {
	return userCommand("quota [NAME]", "Show what a user may have", `Show how many leases, names and watchers a user may have, and how many requests it may send. The column OWNS has what the
user owns in the whole cluster. Without NAME, show the limits of all users that have none of their own.`,
		"  leasekeeper user quota alice", command.Between(0, 1, "at most the name of a user"),
		func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			req := &leasekeeperv1.GetQuotaRequest{}
			if len(args) > 0 {
				req.User = args[0]
			}
			answer, err := c.names().GetQuota(ctx, req)
			if err != nil {
				return c.explain("show the quota", err)
			}
			return printQuota(cmd, c.flags.output, req.User, answer)
		})
}

func printQuota(cmd *cobra.Command, output, user string, answer *leasekeeperv1.GetQuotaResponse) error {
	own, all := answer.GetLimits(), answer.GetAllUsers()
	if own == nil {
		own = &leasekeeperv1.Limits{}
	}
	if all == nil {
		all = &leasekeeperv1.Limits{}
	}
	none := int64(noLimit)
	row := func(resource string, own, all, owns *int64) limitInfo {
		if all == nil {
			all = &none
		}
		return limitInfo{resource, limitWord(own), limitWord(all), owns}
	}
	info := quotaInfo{User: user, Limits: []limitInfo{
		row("leases", own.Leases, all.Leases, &answer.Leases), row("names", own.Names, all.Names, &answer.Names),
		row("watchers", own.Watchers, all.Watchers, nil), row("requests", own.RequestsPerSecond, all.RequestsPerSecond, nil),
	}}
	if user == "" {
		info.Limits[0].Owns, info.Limits[1].Owns = nil, nil
	}
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), info)
	}
	rows := [][]string{{"RESOURCE", "LIMIT", "DEFAULT", "OWNS"}}
	for _, l := range info.Limits {
		owns := ""
		if l.Owns != nil {
			owns = strconv.FormatInt(*l.Owns, 10)
		}
		rows = append(rows, []string{l.Resource, l.Limit, l.Default, owns})
	}
	return console.PrintTable(cmd.OutOrStdout(), rows)
}

// unownedInfo describes a lease that no user owns, in the output of `access unowned`.
type unownedInfo struct {
	ID         string `json:"id"`
	TTLSeconds int64  `json:"ttl_seconds"`
	Claimed    bool   `json:"claimed"` // then only root can renew or release it while access is enabled
	Name       string `json:"name,omitempty"`
}

func newAccessUnowned() *cobra.Command {
	return userCommand("unowned", "List the leases that no user owns", `List the leases that no user owns, because they were granted or claimed while access was not enabled. Look at them before
"leasekeeper access enable": from then on only the user root can renew or release a claim of a name in this list, so its
holder stops. Other leases can be used by all users that may write their keys.`,
		"  leasekeeper access unowned", command.NoArguments,
		func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			leases, more, err := c.unowned(ctx, maxUnownedLeases)
			if err != nil {
				return c.explain("list the leases that no user owns", err)
			}
			if c.flags.output == console.JSON {
				return console.PrintJSON(cmd.OutOrStdout(), leases)
			}
			if err := console.PrintTable(cmd.OutOrStdout(), unownedRows(leases)); err != nil || !more {
				return err
			}
			return console.PrintLine(cmd.ErrOrStderr(), "there are more than %d", maxUnownedLeases)
		})
}

// unowned lists at most the given number of leases that no user owns.
func (c *client) unowned(ctx context.Context, most int) (leases []unownedInfo, more bool, err error) {
	leases = []unownedInfo{}
	req := &leasekeeperv1.ListUnownedRequest{Limit: unownedPage}
	for {
		page, err := c.names().ListUnowned(ctx, req)
		if err != nil {
			return nil, false, err
		}
		for _, l := range page.Leases {
			if len(leases) == most {
				return leases, true, nil
			}
			leases = append(leases, unownedInfo{formatID(l.Id), (l.TtlMs + 999) / 1000, l.Claimed, l.Name})
		}
		if !page.More {
			return leases, false, nil
		}
		req.After = &page.Last
	}
}

func unownedRows(leases []unownedInfo) [][]string {
	rows := [][]string{{"ID", "TTL", "NAME"}}
	for _, l := range leases {
		name := ""
		if l.Claimed {
			name = l.Name
		}
		rows = append(rows, []string{l.ID, seconds(l.TTLSeconds), name})
	}
	return rows
}

// showUnowned prints the first leases that no user owns to standard error, before access is enabled. A server that does not
// know the request has none to show.
func (c *client) showUnowned(ctx context.Context, cmd *cobra.Command) error {
	leases, more, err := c.unowned(ctx, shownUnowned)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return c.explain("list the leases that no user owns", err)
	case len(leases) == 0:
		return nil
	}
	if err := console.PrintLine(cmd.ErrOrStderr(), "no user owns these leases, and only root can renew and release the names among them once access is enabled:"); err != nil {
		return err
	}
	if err := console.PrintTable(cmd.ErrOrStderr(), unownedRows(leases)); err != nil || !more {
		return err
	}
	return console.PrintLine(cmd.ErrOrStderr(), "there are more: `leasekeeper access unowned` lists them")
}
