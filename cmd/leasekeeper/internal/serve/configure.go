package serve

import (
	"log/slog"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server"
)

// Configured is what the settings of a server stand for.
type Configured struct {
	Front   server.Config
	Node    node.Config       // without its cluster
	Cluster *settings.Cluster // nil if the server is not in a cluster
}

// Configure turns the settings into the configurations of a member and its front, and validates them. It reads files that the
// settings name, changes nothing and starts nothing. If it returns an error, the parts that come before it are set.
func Configure(version string, s settings.Server, log *slog.Logger) (c Configured, err error) {
	c.Front = server.Config{
		Name:         s.Name,
		ListenClient: s.Listen,
		Advertise:    s.Advertised(),
		ListenHTTP:   s.HTTP,
		CertFile:     s.Cert,
		KeyFile:      s.Key,
		ClientCAFile: s.ClientCA, ClientCRLFile: s.ClientCRL,
		Version: version,
		Logger:  log,
	}
	console, err := s.Console()
	if err != nil {
		return c, err
	}
	c.Front.ConsoleOff = !console
	c.Node = node.Config{Dir: s.DataDir, Program: programID(version), Logger: log}
	if err := s.Bound(&c.Front, &c.Node); err != nil {
		return c, err
	}
	if err := s.Users(&c.Front, &c.Node); err != nil {
		return c, err
	}
	if c.Cluster, err = s.Cluster(); err != nil {
		return c, err
	}
	if c.Front.Backup, err = s.Backup(c.Node.Space.MinFree); err != nil {
		return c, err
	}
	if err := c.Front.Validate(); err != nil {
		return c, &command.Error{Code: command.ExitUsage, Cause: err}
	}
	return c, nil
}
