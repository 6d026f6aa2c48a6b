package doctor

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/serve"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/certificate"
)

// defaultElection is the election timeout of a server that is in no cluster yet.
const defaultElection = time.Second

// machine is the configuration of the server that runs, or will run, on this machine.
type machine struct {
	settings   settings.Server
	configured serve.Configured
	wrong      error // why serve refuses the configuration; nil if it does not
}

// loadMachine returns the configuration of this machine's server. It returns nil if neither flags nor the environment nor the
// file say anything about one.
func loadMachine(ctx context.Context, flags *pflag.FlagSet, environ []string, version string) (*machine, error) {
	described, err := settings.DescribesServer(flags, environ)
	if err != nil || !described {
		return nil, err
	}
	s, err := settings.LoadServer(flags, environ)
	if err != nil {
		return nil, err
	}
	m := &machine{settings: s}
	if m.wrong = m.settings.Discover(ctx, net.DefaultResolver.LookupSRV, os.Hostname); m.wrong == nil {
		m.configured, m.wrong = serve.Configure(version, m.settings, slog.New(slog.DiscardHandler))
	}
	return m, nil
}

// drift returns the bound on clock rates that the server allows for. Like election it takes a nil machine.
func (m *machine) drift() clock.Drift {
	if m == nil || m.configured.Cluster == nil || m.configured.Cluster.Drift == 0 {
		return clock.DefaultDrift
	}
	return m.configured.Cluster.Drift
}

func (m *machine) election() time.Duration {
	if m == nil || m.configured.Cluster == nil || m.configured.Cluster.Election == 0 {
		return defaultElection
	}
	return m.configured.Cluster.Election
}

// examine checks the machine as one that runs the server. It returns the URL of the server that runs there, if one answers to
// clients without TLS; otherwise "".
func (m *machine) examine(ctx context.Context, now time.Time) (checks []Check, running string) {
	if m.wrong != nil {
		checks = append(checks, bad(Fail, "configuration", "`leasekeeper serve` refuses it", "%v", m.wrong))
	} else {
		checks = append(checks, good("configuration", "`leasekeeper serve` accepts it"))
	}
	checks = append(checks, m.checkResources()...)
	checks = append(checks, checkDisk(ctx, m.settings.DataDir, m.configured.Node.Space, m.election())...)
	ports, runs := m.checkPorts(ctx)
	checks = append(checks, ports...)
	checks = append(checks, m.checkAddresses(ctx, runs)...)
	checks = append(checks, m.checkFiles(now)...)
	if runs && m.settings.Cert == "" {
		running = m.exampleStore()
	}
	return checks, running
}

// exampleStore returns a URL of the server on this machine, for advice.
func (m *machine) exampleStore() string {
	if m.settings.Cert != "" {
		return "leasekeepers://" + reachable(m.settings.Listen) + "/?ca=FILE"
	}
	return "leasekeeper://" + reachable(m.settings.Listen) + "/"
}

func (m *machine) checkResources() []Check {
	if m.configured.Front.MemoryLimit == 0 {
		return nil // the configuration is wrong before it
	}
	front := m.configured.Front
	return []Check{
		judgeFiles(settings.ReadFileLimit(), m.configured.Node.MaxOpenFiles, front.MaxConnections+front.MaxConnectionsHTTP),
		judgeMemory(front.MemoryLimit, settings.ReadAvailableMemory()),
	}
}

// checkAddresses checks the addresses at which clients and members reach each other. runs reports whether the server runs.
func (m *machine) checkAddresses(ctx context.Context, runs bool) (checks []Check) {
	if clients := m.settings.Advertised(); len(clients) > 0 {
		checks = append(checks, judgePlaces("advertised", lookUp(ctx, clients), runs, "or change --advertise"))
	}
	c := m.configured.Cluster
	if c == nil {
		return checks
	}
	checks = append(checks, judgePlaces("peer address", lookUp(ctx, []string{c.Self.Address}), runs, "or change --peer-advertise"))
	others := append([]string{}, c.Join...)
	for _, member := range c.Members {
		if member.Address != c.Self.Address && len(c.Join) == 0 {
			others = append(others, member.Address)
		}
	}
	if len(others) > 0 {
		checks = append(checks, judgePlaces("other members", lookUp(ctx, others), false, "`leasekeeper member list` shows the addresses in use"))
	}
	return append(checks, judgePeerTLS(c.TLS[0] != "", []string{c.Self.Address}))
}

// checkFiles checks the certificates of the configuration.
func (m *machine) checkFiles(now time.Time) (checks []Check) {
	s := m.settings
	if s.Cert != "" {
		hosts := s.Advertised()
		if len(hosts) == 0 {
			hosts = []string{s.Listen}
		}
		checks = append(checks, checkCertificates(certificate.Files{
			Cert: s.Cert, Key: s.Key, CA: s.ClientCA, CRL: s.ClientCRL,
			CertFlag: "--cert", KeyFlag: "--key", CAFlag: "--client-ca", CRLFlag: "--client-crl",
		}, hosts, false, now)...)
	}
	if c := m.configured.Cluster; c != nil && c.TLS[0] != "" {
		checks = append(checks, checkCertificates(certificate.Files{
			Cert: c.TLS[0], Key: c.TLS[1], CA: c.TLS[2], CRL: c.CRL,
			CertFlag: "--peer-cert", KeyFlag: "--peer-key", CAFlag: "--peer-ca", CRLFlag: "--peer-crl",
		}, []string{c.Self.Address}, true, now)...)
	}
	return checks
}

// judgePeerTLS judges whether members are connected with TLS. addresses are those of the members.
func judgePeerTLS(secure bool, addresses []string) Check {
	const name = "TLS of members"
	if secure {
		return good(name, "members speak TLS")
	}
	for _, address := range addresses {
		host := hostOf(address)
		if ip := net.ParseIP(host); !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
			return bad(Warn, name, "members speak without TLS over the network", "set --peer-cert, --peer-key and --peer-ca: without them each program that reaches the port of the members can read and change everything")
		}
	}
	return good(name, "without TLS, on this machine only")
}
