package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server"
)

// stopLimit bounds how long a server that was asked to stop lets requests finish.
const stopLimit = 10 * time.Second

// haltLimit is stopLimit for one that cannot go on: nothing that it has not answered yet will be answered.
const haltLimit = time.Second

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
			return serve(cmd, version, s)
		},
	}
	settings.RegisterServer(cmd.Flags())
	return cmd
}

// serve runs a member and its network front until a signal comes or the member ends by itself.
func serve(cmd *cobra.Command, version string, s settings.Server) error {
	logger, err := s.Logger(os.Stderr)
	if err != nil {
		return err
	}
	config := server.Config{
		Name:         s.Name,
		ListenClient: s.Listen,
		Advertise:    s.Advertised(),
		ListenHTTP:   s.HTTP,
		CertFile:     s.Cert,
		KeyFile:      s.Key,
		ClientCAFile: s.ClientCA,
		Version:      version,
		Logger:       logger,
	}
	nodeConfig := node.Config{Dir: s.DataDir, Logger: logger}
	if err := s.Bound(&config, &nodeConfig); err != nil {
		return err
	}
	plan, err := s.Cluster()
	if err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return &command.Error{Code: command.ExitUsage, Cause: err}
	}
	signals := make(chan os.Signal, 2)
	p := &process{version: version, settings: s, log: logger, signals: signals}
	if plan != nil {
		plan.Warn(logger)
		p.member = &groupMember{plan: plan, socket: new(socket)}
		nodeConfig.Cluster = p.member.config()
	}
	// Somebody who starts a second server by mistake reads about the first one, and finds no new data folder.
	if err := checkPorts(s, plan); err != nil {
		return err
	}
	if err := settings.Protect(s.DataDir, "another directory with --data-dir"); err != nil {
		logger.Warn("the data directory is not protected from other users", "error", err)
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	// Errors of all say by themselves what to do.
	starting, started := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	p.node, err = node.Start(starting, nodeConfig)
	interrupted := starting.Err() != nil
	started()
	if err != nil {
		if interrupted {
			logger.Info("stopped by a signal before it had started")
			return nil
		}
		return err
	}
	if err := p.start(config); err != nil {
		return errors.Join(err, p.node.Stop(cmd.Context()), p.member.close(cmd.Context()))
	}
	defer manageHeap(cmd.Context())()
	defer limitMemory(cmd.Context(), config.MemoryLimit, p.node, logger)()
	return p.run(cmd)
}

// start starts what is around the node.
func (p *process) start(config server.Config) (err error) {
	if p.member != nil {
		if err := p.member.connect(p.node, config.MaxRequestBytes, p.log); err != nil {
			return err
		}
		config.Cluster = p.member.group()
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

// process is a server that has been started and must be stopped.
type process struct {
	version  string
	settings settings.Server
	log      *slog.Logger
	node     *node.Node
	member   *groupMember // nil if it is alone
	front    *server.Server
	signals  <-chan os.Signal
}

// run waits for the end and ends what is left then: first the front, so that nobody is promised anything
// more, then the node, and then its connections to others. A leader hands over before.
func (p *process) run(cmd *cobra.Command) error {
	p.awaitEnd(cmd)
	p.notify(daemon.SdNotifyStopping)
	go p.exitAtNextSignal()
	p.handOver(context.WithoutCancel(cmd.Context()))
	why := p.front.Err() // before Stop
	limit := stopLimit
	if p.node.Err() != nil {
		limit = haltLimit
	}
	cut := within(cmd, limit, p.front.Stop)
	// The front may have used up its time waiting for clients; that is no reason not to close the data.
	err := within(cmd, limit, p.node.Stop)
	if err := within(cmd, limit, p.member.close); err != nil {
		p.log.Warn("the connections to other members did not close cleanly", "error", err)
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

// within gives something the time it may take to stop.
func within(cmd *cobra.Command, limit time.Duration, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), limit)
	defer cancel()
	return stop(ctx)
}

// awaitEnd returns when a signal comes or the server cannot go on, and tells in between when it serves.
func (p *process) awaitEnd(cmd *cobra.Command) {
	ready := p.node.Ready()
	for {
		select {
		case <-ready:
			ready = nil // once
			greet(cmd.OutOrStdout(), p.version, p.settings, p.front)
			p.notify(daemon.SdNotifyReady)
		case s := <-p.signals:
			p.log.Info("stopping", "signal", s.String())
			return
		case <-p.front.Done():
			return
		case <-p.node.Done():
			return
		}
	}
}

// exitAtNextSignal is for those who do not want to wait. What was acknowledged is on disk.
func (p *process) exitAtNextSignal() {
	<-p.signals
	os.Exit(command.ExitFailed)
}

// notify tells systemd, if it is there.
func (p *process) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		p.log.Warn("could not notify systemd", "state", state, "error", err)
	}
}
