package client

import (
	"context"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// health is what `health -o json` prints.
type health struct {
	Endpoint string `json:"endpoint"`
	Health   string `json:"health"` // "ready" or "not ready"
}

func newHealth() *cobra.Command {
	var flags clientFlags
	var live bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a server is ready, for probes",
		Long: `Check whether a server is ready: it knows a leader, and reads and renewals work through it. The check needs no user,
changes nothing, and asks no other member.

The exit code is 0 if the server is ready, 1 if it is not, and 3 if it does not answer. With --live, a server that answers
is enough. Use that to decide whether to restart it: a member that waits for the others is not ready, and a restart does
not help it.`,
		Example: `  leasekeeper health
  leasekeeper health --live --timeout 2s`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				answer, err := healthpb.NewHealthClient(c.conn).Check(ctx, new(healthpb.HealthCheckRequest))
				if err != nil {
					return c.explain("ask for the health", err)
				}
				return c.printHealth(cmd, answer.GetStatus() == healthpb.HealthCheckResponse_SERVING, live)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&live, "live", false, "succeed if the server answers, even if it is not ready")
	return cmd
}

// printHealth prints the server's answer. Its error carries the exit code.
func (c *client) printHealth(cmd *cobra.Command, ready, live bool) error {
	h := health{Endpoint: c.flags.endpoint, Health: "ready"}
	if !ready {
		h.Health = "not ready"
	}
	var err error
	if c.flags.output == console.JSON {
		err = console.PrintJSON(cmd.OutOrStdout(), h)
	} else {
		err = console.PrintLine(cmd.OutOrStdout(), "%s is %s", h.Endpoint, h.Health)
	}
	if err == nil && !ready && !live {
		return &command.Error{Code: command.ExitFailed}
	}
	return err
}
