package client

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

// serverStatus is the output of `status` about one server.
type serverStatus struct {
	Endpoint     string   `json:"endpoint"`
	Health       string   `json:"health"` // "healthy" or "unhealthy"
	Troubles     []string `json:"troubles"`
	Name         string   `json:"name"`
	MemberID     string   `json:"member_id"` // hexadecimal
	ClusterID    string   `json:"cluster_id"`
	Role         string   `json:"role"` // "leader", "follower", "learner" or "no leader"
	Term         uint64   `json:"term"`
	Revision     int64    `json:"revision"`
	AppliedIndex uint64   `json:"applied_index"`
	LogIndex     uint64   `json:"log_index"`
	EtcdVersion  string   `json:"etcd_version"` // the version of etcd's API that the server speaks
	Leases       int      `json:"leases"`
	DBSizeBytes  int64    `json:"db_size_bytes"`
	// Members are the members of the cluster; missing if the server is not in a cluster.
	Members []memberjson.Member `json:"members,omitempty"`
}

// healthy is the health of a server without troubles.
const healthy = "healthy"

func newStatus() *cobra.Command {
	flags := clientFlags{atOnce: true}
	watch := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the health of a server and its cluster, or of a database",
		Long: `Show the health of a server and, if it is a member of a cluster, of all members. The server asks the other members.
The exit code is about this server alone: 0 if it is healthy, 1 if it is not, and 3 if it does not answer.

If --store or LEASEKEEPER_STORE names a database, show how many names it has, how many are held, and how long a request
took. The exit code is 0 if all records can be read, 1 if some cannot, 3 if the database does not answer, and 4 if it
cannot be used.

With --watch, show the status in the terminal and ask again every two seconds, until q or Ctrl-C.`,
		Example: `  leasekeeper status
  leasekeeper status --endpoint 10.0.0.7:2379 -o json
  leasekeeper status --store postgres://db.example.org/app`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return flags.live(cmd)
			}
			if database, err := flags.database(); err != nil || database != "" {
				if err == nil {
					err = flags.printStoreStatus(cmd.Context(), cmd, database)
				}
				return err
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				s, err := c.status(ctx)
				if err != nil {
					return c.explain("ask for the status", err)
				}
				if err := s.print(cmd.OutOrStdout(), flags.output); err != nil {
					return err
				}
				if len(s.Troubles) > 0 {
					return &command.Error{Code: command.ExitFailed}
				}
				return nil
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "show a live view in the terminal, until q or Ctrl-C")
	return cmd
}

func (c *client) status(ctx context.Context) (*serverStatus, error) {
	answer, err := pb.NewMaintenanceClient(c.conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	header := answer.GetHeader()
	s := &serverStatus{
		Endpoint:     c.flags.endpoint,
		Troubles:     append([]string{}, answer.Errors...),
		MemberID:     fmt.Sprintf("%016x", header.GetMemberId()),
		ClusterID:    fmt.Sprintf("%016x", header.GetClusterId()),
		Role:         role(answer),
		Term:         answer.RaftTerm,
		Revision:     header.GetRevision(),
		AppliedIndex: answer.RaftAppliedIndex,
		LogIndex:     answer.RaftIndex,
		EtcdVersion:  answer.Version,
		DBSizeBytes:  answer.DbSize,
	}
	members, err := pb.NewClusterClient(c.conn).MemberList(ctx, &pb.MemberListRequest{})
	if err != nil {
		return nil, err
	}
	for _, m := range members.Members {
		if m.ID == header.GetMemberId() {
			s.Name = m.Name
		}
	}
	leases, err := c.leases().LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	if err != nil {
		s.Troubles = append(s.Troubles, "the server does not list its leases: "+err.Error())
	}
	s.Leases = len(leases.GetLeases())
	if s.Members, err = c.members(ctx); err != nil {
		s.Troubles = append(s.Troubles, "the server does not list the members: "+status.Convert(err).Message())
	}
	s.Health = healthy
	if len(s.Troubles) > 0 {
		s.Health = "unhealthy"
	}
	return s, nil
}

func role(answer *pb.StatusResponse) string {
	switch {
	case answer.IsLearner:
		return "learner"
	case answer.Leader == 0:
		return "no leader"
	case answer.Leader == answer.GetHeader().GetMemberId():
		return "leader"
	}
	return "follower"
}

func (s *serverStatus) print(w io.Writer, output string) error {
	if output == console.JSON {
		return console.PrintJSON(w, s)
	}
	health := s.Health
	if len(s.Troubles) > 0 {
		health += ": " + strings.Join(s.Troubles, "; ")
	}
	err := console.PrintTable(w, [][]string{
		{"endpoint", s.Endpoint},
		{"health", health},
		{"member", s.Name + " (" + s.MemberID + ")"},
		{"role", s.Role},
		{"term", strconv.FormatUint(s.Term, 10)},
		{"revision", strconv.FormatInt(s.Revision, 10)},
		{"applied index", strconv.FormatUint(s.AppliedIndex, 10)},
		{"etcd version", s.EtcdVersion},
		{"leases", strconv.Itoa(s.Leases)},
		{"db size", console.BytesInWords(s.DBSizeBytes)},
	}, console.Wrap(), console.Paint(healthTone))
	if err != nil || len(s.Members) == 0 {
		return err
	}
	return printMembers(w, s.Members)
}

// healthTone returns the tone of a cell in the table about one server.
func healthTone(row []string, column int) console.Tone {
	switch {
	case column == 0 || row[0] != "health":
		return console.Plain
	case row[1] == healthy:
		return console.Held
	}
	return console.Lost
}
