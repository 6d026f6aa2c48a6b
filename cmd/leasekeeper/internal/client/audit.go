package client

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

const (
	// followPause is the pause between two requests of `audit --follow`.
	followPause = time.Second
	// defaultAuditLimit and maxAuditLimit are of --limit. The server keeps no more.
	defaultAuditLimit, maxAuditLimit = 100, 10_000
)

// auditFlags are the flags of `audit`.
type auditFlags struct {
	clientFlags
	user   string
	object string
	since  time.Duration
	limit  int
	follow bool
}

func newAudit() *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show forced and administrative acts",
		Long: `Show who carried out forced and administrative acts, from where, when and why: changes of users, roles and members, and
revoked, pinned and transferred names. The newest come last. While access is enabled, this needs the role root.

The server keeps the last 10,000 records. The time is that of the leader which logged the act, by its own clock; the
number in the first column orders acts. Acts that were refused are not in the list.

With -o json and --follow, each line is one record.`,
		Example: `  leasekeeper audit --since 24h
  leasekeeper audit --by root --limit 10 -o json
  leasekeeper audit --object jobs/nightly
  leasekeeper audit --follow`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.limit < 1 || flags.limit > maxAuditLimit {
				return command.WrongUsage("--limit %d is not from 1 to %d: write how many records to show", flags.limit, maxAuditLimit)
			}
			if flags.since < 0 {
				return command.WrongUsage("--since %v is negative: write how far to look back, such as 24h", flags.since)
			}
			return flags.show(cmd)
		},
	}
	cmd.Flags().StringVar(&flags.user, "by", "", "show only the acts of this `user`")
	cmd.Flags().StringVar(&flags.object, "object", "", "show only acts whose object begins with this `text`, such as a name")
	cmd.Flags().DurationVar(&flags.since, "since", 0, "show only acts of this long ago or less, such as 24h; 0 shows all")
	cmd.Flags().IntVar(&flags.limit, "limit", defaultAuditLimit, "show at most the last `n` acts")
	cmd.Flags().BoolVarP(&flags.follow, "follow", "f", false, "go on and show acts as they happen")
	flags.register(cmd)
	return cmd
}

func (f *auditFlags) show(cmd *cobra.Command) error {
	request := &leasekeeperv1.AuditRequest{User: f.user, ObjectPrefix: f.object}
	if f.since > 0 {
		request.Since = timestamppb.New(time.Now().Add(-f.since))
	}
	var last []*leasekeeperv1.AuditRecord
	err := withClient(cmd, &f.clientFlags, func(ctx context.Context, c *client) error {
		recording, err := c.readAudit(ctx, request, func(page []*leasekeeperv1.AuditRecord) error {
			last = append(last, page...)
			last = last[max(0, len(last)-f.limit):]
			return nil
		})
		if err != nil || recording {
			return err
		}
		return command.Failed("the audit log has not begun: it begins when the first user or role is added, or with `leasekeeper serve --audit=true` on every member")
	})
	if err != nil {
		return err
	}
	if f.output == console.JSON && !f.follow {
		records := make([]memberjson.AuditRecord, len(last))
		for i, r := range last {
			records[i] = memberjson.OfAuditRecord(r)
		}
		return console.PrintJSON(cmd.OutOrStdout(), records)
	}
	if err := f.print(cmd, last, true); err != nil || !f.follow {
		return err
	}
	return withConnection(cmd, &f.clientFlags, func(ctx context.Context, c *client) error { return f.goOn(ctx, cmd, c, request) })
}

// goOn prints records as they come, until the command is interrupted.
func (f *auditFlags) goOn(ctx context.Context, cmd *cobra.Command, c *client, request *leasekeeperv1.AuditRequest) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followPause):
		}
		asking, cancel := context.WithTimeout(ctx, f.timeout)
		_, err := c.readAudit(asking, request, func(page []*leasekeeperv1.AuditRecord) error { return f.print(cmd, page, false) })
		cancel()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// readAudit reads all records from where the request begins, page by page, and moves the request behind them.
func (c *client) readAudit(ctx context.Context, r *leasekeeperv1.AuditRequest, take func([]*leasekeeperv1.AuditRecord) error) (recording bool, err error) {
	for {
		page, err := leasekeeperv1.NewLeasekeeperClient(c.conn).Audit(ctx, r)
		if err != nil {
			return false, c.explain("read the audit log", err)
		}
		if err := take(page.Records); err != nil {
			return false, err
		}
		r.After = page.After
		if !page.More {
			return page.Recording, nil
		}
	}
}

// print prints records: as a table, or as JSON with one record a line.
func (f *auditFlags) print(cmd *cobra.Command, records []*leasekeeperv1.AuditRecord, head bool) error {
	if f.output == console.JSON {
		for _, r := range records {
			if err := console.PrintJSONLine(cmd.OutOrStdout(), memberjson.OfAuditRecord(r)); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if head {
		rows = append(rows, []string{"NUMBER", "TIME", "WHO", "FROM", "ACT", "OBJECT", "REASON"})
	}
	for _, r := range records {
		rows = append(rows, auditRow(r))
	}
	if len(rows) == 0 {
		return nil
	}
	return console.PrintTable(cmd.OutOrStdout(), rows, console.Shorten(2, 5, 6))
}

func auditRow(r *leasekeeperv1.AuditRecord) []string {
	at := "unknown"
	if r.Time != nil {
		at = r.Time.AsTime().Local().Format(time.RFC3339)
	}
	who := r.User
	if who == "" && r.Certificate != "" {
		who = "certificate " + r.Certificate
	}
	return []string{strconv.FormatUint(r.Sequence, 10), at, orNone(who), orNone(r.Address), r.Act, orNone(r.Object), orNone(r.Reason)}
}

// orNone returns a cell that is not empty.
func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
