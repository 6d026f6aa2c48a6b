package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// clientFlags are the flags of all commands that talk to a server.
type clientFlags struct {
	endpoint string
	store    string
	at       place // complete sets it
	timeout  time.Duration
	output   string
	tls      tlsFlags
	user     userFlags
	// atOnce is set by a command that reports whether there is a leader, and so does not wait for one.
	atOnce bool
}

func (f *clientFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "endpoint", "", "the server's `host:port`, with https:// before it if the server speaks TLS (env "+settings.EndpointVariable+"; default "+settings.DefaultEndpoint+")")
	flags.StringVar(&f.store, "store", "", "`URL` of the server as a store of names, such as "+settings.ExampleStore+", instead of --endpoint (env "+settings.StoreVariable+", after "+settings.EndpointVariable+")")
	flags.DurationVar(&f.timeout, "timeout", settings.DefaultTimeout, "how long to wait for the server's answers")
	flags.StringVarP(&f.output, "output", "o", console.Table, "`table` or json")
	f.tls.register(flags)
	f.user.register(flags)
}

// complete fills in values from the environment, and checks the flags.
func (f *clientFlags) complete() error {
	found, err := f.useStore()
	if err == nil && !found {
		err = f.useEndpoint()
	}
	if err != nil {
		return err
	}
	return f.check()
}

// useEndpoint takes the server from --endpoint, the environment, or the default.
func (f *clientFlags) useEndpoint() (err error) {
	if f.endpoint == "" {
		f.endpoint = os.Getenv(settings.EndpointVariable)
	}
	if f.endpoint == "" {
		f.endpoint = settings.DefaultEndpoint
	}
	if f.endpoint, err = f.tls.complete(f.endpoint); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(f.endpoint); err != nil {
		return command.WrongUsage("%q is not an endpoint: write host:port, such as %s", f.endpoint, settings.DefaultEndpoint)
	}
	f.at.hosts = []string{f.endpoint}
	f.at.tls, err = f.tls.config()
	return err
}

// check checks the flags that do not say where the server is.
func (f *clientFlags) check() error {
	if f.timeout <= 0 {
		return command.WrongUsage("--timeout %v is not positive: write how long to wait, such as 5s", f.timeout)
	}
	if f.output != console.Table && f.output != console.JSON {
		return command.WrongUsage("unknown output %q: write -o table or -o json", f.output)
	}
	return nil
}

// client is a connection to one server.
type client struct {
	flags clientFlags
	conn  *grpc.ClientConn
}

// withClient runs work with a connection to the chosen server. The context of work ends after --timeout.
func withClient(cmd *cobra.Command, flags *clientFlags, work func(ctx context.Context, c *client) error) error {
	return withConnection(cmd, flags, func(ctx context.Context, c *client) error {
		ctx, cancel := context.WithTimeout(ctx, flags.timeout)
		defer cancel()
		return work(ctx, c)
	})
}

// withConnection is withClient without the limit of time.
func withConnection(cmd *cobra.Command, flags *clientFlags, work func(ctx context.Context, c *client) error) error {
	if err := flags.complete(); err != nil {
		return err
	}
	transport := insecure.NewCredentials()
	if flags.at.tls != nil {
		transport = credentials.NewTLS(flags.at.tls)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32))}
	if !flags.atOnce {
		options = append(options, grpc.WithChainUnaryInterceptor(awaitLeader))
	}
	user, err := flags.user.userAt(flags.at)
	if err != nil {
		return err
	}
	if user != nil {
		options = append(options, user.Options()...)
	}
	target, reach := flags.at.target()
	conn, err := grpc.NewClient(target, append(options, reach...)...)
	if err != nil {
		return command.WrongUsage("%q is not an endpoint: %v", flags.endpoint, err)
	}
	defer conn.Close()
	return work(cmd.Context(), &client{flags: *flags, conn: conn})
}

func (c *client) leases() pb.LeaseClient { return pb.NewLeaseClient(c.conn) }

// explain turns the error of a call into a sentence that says what to do. doing is the text after "could not".
func (c *client) explain(doing string, err error) error {
	var known *command.Error
	if errors.As(err, &known) {
		return err
	}
	answer := status.Convert(err)
	if advice := accessAdvice[rpctypes.Error(err)]; advice != "" {
		return command.Failed("could not %s: %s", doing, advice)
	}
	switch answer.Code() {
	case codes.Unavailable:
		if trouble := c.explainTLS(doing, answer.Message()); trouble != nil {
			return trouble
		}
		if strings.Contains(answer.Message(), "connection error") || strings.Contains(answer.Message(), "error reading from server") {
			return c.unreachable("could not %s: no server answers at %s; start one with `leasekeeper serve`, or choose another with --endpoint or --store", doing)
		}
		return c.unreachable("could not %s: the server at %s is not ready (%s); try again in a moment", doing, answer.Message())
	case codes.DeadlineExceeded:
		return c.unreachable("could not %s: the server at %s did not answer within %v; check its log, or wait longer with --timeout", doing, c.flags.timeout)
	case codes.PermissionDenied:
		return command.Failed("could not %s: %s", doing, accessAdvice[rpctypes.ErrPermissionDenied])
	case codes.Unauthenticated:
		return command.Failed("could not %s: %s", doing, accessAdvice[rpctypes.ErrUserEmpty])
	case codes.Unimplemented:
		return command.Failed("could not %s: the server at %s does not offer this (%s)", doing, c.flags.endpoint, answer.Message())
	}
	return command.Failed("could not %s: the server at %s says: %s", doing, c.flags.endpoint, answer.Message())
}

// accessAdvice says what to do about refusals that users and their rights cause.
var accessAdvice = map[error]string{
	rpctypes.ErrUserEmpty:            "the server requires a user: give one with --user and --password-file, or with a certificate",
	rpctypes.ErrAuthFailed:           "the server knows no such user with this password",
	rpctypes.ErrInvalidAuthToken:     "the server no longer accepts the user's token: try again",
	rpctypes.ErrPermissionDenied:     "the user may not do this: `leasekeeper user show` and `leasekeeper role show` tell what it may do",
	rpctypes.ErrRootUserNotExist:     "there is no user root: add it with `leasekeeper user add root`",
	rpctypes.ErrRootRoleNotExist:     "the user root does not have the role root: give it with `leasekeeper user grant root root`",
	rpctypes.ErrUserNotFound:         "there is no such user; `leasekeeper user list` lists them",
	rpctypes.ErrUserAlreadyExist:     "there is a user with this name already",
	rpctypes.ErrRoleNotFound:         "there is no such role; `leasekeeper role list` lists them",
	rpctypes.ErrRoleAlreadyExist:     "there is a role with this name already",
	rpctypes.ErrRoleNotGranted:       "the user does not have this role",
	rpctypes.ErrPermissionNotGranted: "the role has no such permission; `leasekeeper role show` shows those that it has",
	rpctypes.ErrAuthNotEnabled:       "access is not enabled on the server",
}

// unreachable returns an error with [command.ExitUnreachable]. The arguments of format are doing, the endpoint and rest.
func (c *client) unreachable(format, doing string, rest ...any) error {
	cause := fmt.Errorf(format, append([]any{doing, c.flags.endpoint}, rest...)...)
	return &command.Error{Code: command.ExitUnreachable, Cause: cause}
}
