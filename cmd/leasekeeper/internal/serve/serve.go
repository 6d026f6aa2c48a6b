package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server"
)

// stopLimit bounds how long a stopping server lets requests finish.
const stopLimit = 10 * time.Second

// haltLimit replaces stopLimit if the member has failed: then it answers no further request.
const haltLimit = time.Second

// grace returns how long a stopping server lets requests finish. ended is why the member has ended, nil if it has not. A
// member that was removed still receives the leader's answers to what it has forwarded.
func grace(ended error) time.Duration {
	if removed := (*replica.RemovedError)(nil); ended == nil || errors.As(ended, &removed) {
		return stopLimit
	}
	return haltLimit
}

func newServe(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a lease server",
		Long: `Run a lease server until it receives SIGTERM or SIGINT. A second signal ends it at once.

Each setting comes from the first of these places that has it: the flag, the environment variable, the file of
--config, the default. The variable is LEASEKEEPER_ with the flag's name in capitals, such as LEASEKEEPER_DATA_DIR.`,
		Example: `  leasekeeper serve
  leasekeeper serve --data-dir /var/lib/leasekeeper --listen 0.0.0.0:2379 --advertise leases.example.org:2379`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := settings.LoadServer(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if err := s.Discover(cmd.Context(), net.DefaultResolver.LookupSRV, os.Hostname); err != nil {
				return err
			}
			return serve(cmd, version, s)
		},
	}
	settings.RegisterServer(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if known := settings.ExplainFlag(err); known != nil {
			return known
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	return cmd
}

// serve runs a member and its network front until a signal arrives or the member ends by itself.
func serve(cmd *cobra.Command, version string, s settings.Server) error {
	logger, err := s.Logger(os.Stderr)
	if err != nil {
		return err
	}
	p := &process{version: version, settings: s, log: logger}
	if err := p.configure(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	p.signals = signals
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	if started, err := p.startNode(cmd.Context()); err != nil || !started {
		return err
	}
	if err := p.startFront(); err != nil {
		return errors.Join(err, p.node.Stop(cmd.Context()), p.member.close(cmd.Context()))
	}
	defer manageHeap(cmd.Context())()
	defer limitMemory(cmd.Context(), p.frontConfig.MemoryLimit, p.node, logger)()
	defer p.startWatchdog(context.WithoutCancel(cmd.Context()))()
	return p.run(cmd)
}

// process is a running server: a member, its front and, in a cluster, the connections to the other members.
type process struct {
	version     string
	settings    settings.Server
	log         *slog.Logger
	signals     <-chan os.Signal
	nodeConfig  node.Config    // set by configure
	frontConfig server.Config  // set by configure
	member      *clusterMember // set by configure; nil if the server is not in a cluster
	node        *node.Node     // set by startNode
	front       *server.Server // set by startFront
}

// configure turns the settings into the configurations of the member and its front. It also checks the addresses and
// the data directory. It starts nothing.
func (p *process) configure() error {
	s := p.settings
	c, err := Configure(p.version, s, p.log)
	if err != nil {
		return err
	}
	p.frontConfig, p.nodeConfig = c.Front, c.Node
	plan := c.Cluster
	if plan != nil {
		plan.Warn(p.log)
		p.member = &clusterMember{plan: plan, log: p.log, socket: new(peer.Socket)}
		p.nodeConfig.Cluster = p.member.config()
	}
	// Checked before the member creates a data directory: a user who starts a second server by mistake reads about the
	// first one, and finds no new directory.
	if err := checkPorts(s, plan); err != nil {
		return err
	}
	if err := settings.Protect(s.DataDir, "another directory with --data-dir"); err != nil {
		p.log.Warn("the data directory is not protected from other users", "error", err)
	}
	return nil
}

// startNode starts the member. It returns false without an error if a signal stops the start. Errors of [node.Start] say
// what to do.
func (p *process) startNode(ctx context.Context) (started bool, err error) {
	starting, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	p.node, err = node.Start(starting, p.nodeConfig)
	interrupted := starting.Err() != nil
	stop()
	if err != nil && interrupted {
		p.log.Info("stopped by a signal before it had started")
		return false, nil
	}
	return err == nil, err
}

// startFront connects the member to the other members, and starts its front.
func (p *process) startFront() (err error) {
	config := p.frontConfig
	if p.member != nil {
		if err := p.member.connect(p.node, config.MaxRequestBytes); err != nil {
			return err
		}
		config.Cluster = p.member.serverCluster()
	}
	if p.front, err = server.New(config, p.node); err != nil {
		return err
	}
	if p.member != nil {
		if err := p.member.transport.Start(); err != nil {
			return err
		}
	}
	return p.front.Start()
}

// run waits for the end, and then stops the rest in this order:
//
//   - health reports that the server is not ready;
//   - a leader hands over leadership;
//   - the front stops, so that no client receives a further promise;
//   - a removed member waits until another one has confirmed the removal;
//   - the node stops;
//   - the connections to other members close.
func (p *process) run(cmd *cobra.Command) error {
	asked, ask := context.WithCancel(context.WithoutCancel(cmd.Context())) // ends at the first signal
	defer ask()
	if p.awaitEnd(cmd) {
		ask()
	}
	go p.exitAtSecondSignal(asked, ask)
	p.front.AnnounceStop()
	p.handOver(context.WithoutCancel(cmd.Context()))
	why := p.front.Err() // read before Stop, which may set it
	limit := grace(p.node.Err())
	cut := within(cmd, limit, p.front.Stop)
	p.awaitRemoval(asked)
	p.notify(daemon.SdNotifyStopping) // systemd bounds what comes after it
	// The front may have used all its time to wait for clients. The node has its own limit, so that it closes its data.
	err := within(cmd, limit, p.node.Stop)
	if err := within(cmd, limit, p.member.close); err != nil {
		p.log.Warn("the connections to other members did not close cleanly", "error", err)
	}
	if removed := (*replica.RemovedError)(nil); errors.As(err, &removed) {
		return command.Failed("%v", removed)
	}
	if err != nil {
		return command.Failed("the server had to stop: %v; acknowledged data is safe in %s: fix the cause, then start the server again", err, p.settings.DataDir)
	}
	if why != nil {
		return command.Failed("the server had to stop: %v; acknowledged data is safe in %s: start the server again", why, p.settings.DataDir)
	}
	if cut != nil {
		p.log.Warn("requests were cut off; their clients receive an unknown outcome", "error", cut)
	}
	return nil
}

// within calls stop with a context that ends after limit.
func within(cmd *cobra.Command, limit time.Duration, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), limit)
	defer cancel()
	return stop(ctx)
}

// awaitEnd returns when a signal arrives, or when the front or the node has ended. signalled says that it was a signal.
// Meanwhile awaitEnd announces that the server is ready.
func (p *process) awaitEnd(cmd *cobra.Command) (signalled bool) {
	ready := p.node.Ready()
	for {
		select {
		case <-ready:
			ready = nil // a nil channel never receives: announce only once
			greet(cmd.OutOrStdout(), p.version, p.settings, p.front)
			p.notify(daemon.SdNotifyReady)
		case s := <-p.signals:
			p.log.Info("stopping", "signal", s.String())
			return true
		case <-p.front.Done():
			return false
		case <-p.node.Done():
			return false
		}
	}
}

// awaitRemoval returns when another member has confirmed that this one was removed, or some time after a signal. Until then
// the others may need its vote. It returns at once if this member was not removed.
func (p *process) awaitRemoval(asked context.Context) {
	select {
	case <-p.node.Removed():
	default:
		return
	}
	select {
	case <-p.node.Done():
		return
	case <-asked.Done():
	}
	select {
	case <-p.node.Done():
	case <-time.After(stopLimit):
		p.log.Warn("this member was removed, and no other member has confirmed that: if the others elect no leader, start it once more until it ends by itself")
	}
}

// exitAtSecondSignal calls ask at the first signal, unless that has come before, and ends the process at once at the
// second one. Acknowledged data is already on disk.
func (p *process) exitAtSecondSignal(asked context.Context, ask func()) {
	if asked.Err() == nil {
		<-p.signals
		ask()
	}
	<-p.signals
	os.Exit(command.ExitFailed)
}

// notify sends the state to systemd, if systemd started this process.
func (p *process) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		p.log.Warn("could not notify systemd", "state", state, "error", err)
	}
}
