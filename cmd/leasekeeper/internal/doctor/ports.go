package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/serve"
	"github.com/leasekeeper/leasekeeper/server"
)

const (
	// dialLimit bounds one look at an address.
	dialLimit = 2 * time.Second
	// versionBytes bounds the answer of a server to the request for its version.
	versionBytes = 4096
)

// port is an address on which a server listens.
type port struct {
	address, flag string
	tls           bool
	cert          string // the file of the certificate; "" without TLS
	speaksHTTP    bool   // it answers a request for the version
}

// answered is what a look at a port in use found.
type answered struct {
	connects bool
	version  string // of a leasekeeper that answers; "" if none does
	tls      bool   // it speaks TLS
	another  bool   // it presents another certificate than that in the file
}

// judgePort judges a port that serve would listen on. err is why it cannot. others reports that another port of the same server
// answers as leasekeeper.
func judgePort(p port, err error, found answered, others bool) Check {
	name := "port " + p.flag
	busy := (*serve.PortError)(nil)
	switch {
	case err == nil && others:
		return bad(Warn, name, p.address+" is free, but the server runs", "check that the running server was started with this configuration")
	case err == nil:
		return good(name, "%s is free", p.address)
	case !errors.As(err, &busy) || !busy.InUse:
		return bad(Fail, name, "the server cannot listen on "+p.address, "%v", err)
	case !found.connects:
		return bad(Fail, name, p.address+" is in use, and does not answer", "find the program that listens there, and stop it, or choose another address with %s", p.flag)
	case p.tls && !found.tls:
		return bad(Fail, name, p.address+" answers without TLS", "restart the server with this configuration, or stop the other program that listens there")
	case found.another:
		return bad(Warn, name, p.address+" presents another certificate than the file", "wait some seconds: the server rereads its files; if it still does, see its log, or stop the other program that listens there")
	case found.version != "":
		return good(name, "leasekeeper %s answers at %s", found.version, p.address)
	case p.tls && found.tls, others:
		return good(name, "%s answers", p.address)
	}
	return bad(Fail, name, "another program answers at "+p.address, "%v", err)
}

// checkPorts checks the addresses on which the server of a configuration listens. running reports whether a server answers.
func (m *machine) checkPorts(ctx context.Context) (checks []Check, running bool) {
	ports := m.ports()
	errs, found := make([]error, len(ports)), make([]answered, len(ports))
	for i, p := range ports {
		if errs[i] = serve.CheckPort(p.address, p.flag); errs[i] != nil {
			found[i] = lookAt(ctx, p)
		}
		running = running || found[i].version != "" || p.tls && found[i].tls
	}
	for i, p := range ports {
		if _, number, _ := net.SplitHostPort(p.address); number == "0" {
			checks = append(checks, good("port "+p.flag, "%s: the system picks a free port", p.address))
			continue
		}
		checks = append(checks, judgePort(p, errs[i], found[i], running))
	}
	return checks, running
}

// ports returns the addresses on which the server listens.
func (m *machine) ports() []port {
	s := m.settings
	all := []port{{address: s.Listen, flag: "--listen", tls: s.Cert != "", cert: s.Cert, speaksHTTP: true}}
	if s.HTTP != server.HTTPOff {
		all = append(all, port{address: s.HTTP, flag: "--http", tls: s.Cert != "", cert: s.Cert, speaksHTTP: true})
	}
	if c := m.configured.Cluster; c != nil {
		all = append(all, port{address: c.Listen, flag: "--peer-listen", tls: c.TLS[0] != "", cert: c.TLS[0]})
	}
	return all
}

// lookAt connects to a port in use.
func lookAt(ctx context.Context, p port) (found answered) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", reachable(p.address))
	if err != nil {
		return found
	}
	defer conn.Close()
	found.connects = true
	scheme := "http"
	if p.tls {
		// The certificate is judged from its file. A handshake only tells that the program speaks TLS.
		session := tls.Client(conn, anyServer())
		if session.HandshakeContext(ctx) != nil {
			return found
		}
		found.another = !presents(session, p.cert)
		found.tls, scheme = true, "https"
	}
	if p.speaksHTTP {
		found.version = askVersion(ctx, scheme+"://"+reachable(p.address)+"/version")
	}
	return found
}

// presents reports whether the server of a session has presented the certificate in a file. It does so too if the file cannot be
// read, which another check reports.
func presents(session *tls.Conn, file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return true
	}
	block, _ := pem.Decode(text)
	shown := session.ConnectionState().PeerCertificates
	return block == nil || len(shown) > 0 && bytes.Equal(shown[0].Raw, block.Bytes)
}

// anyServer returns a configuration for a handshake with a server whose certificate is not verified, because the handshake
// exists to look at it. Nothing secret is sent over such a connection.
func anyServer() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

// askVersion returns the version of the leasekeeper that answers at a URL, or "".
func askVersion(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	transport := &http.Transport{TLSClientConfig: anyServer(), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	var about struct {
		Leasekeeper string `json:"leasekeeper"`
	}
	if text, err := io.ReadAll(io.LimitReader(answer.Body, versionBytes)); err != nil || json.Unmarshal(text, &about) != nil {
		return ""
	}
	return about.Leasekeeper
}

// reachable replaces an address of every interface by one to connect to.
func reachable(address string) string {
	host, number, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", number)
	}
	return address
}

// place is an address that others use, and what a look at it found.
type place struct {
	address  string
	resolves error // nil if its host has an address
	connects error // nil if it accepts a connection
}

// lookUp resolves addresses and connects to each, at the same time. It returns when all looks have ended.
func lookUp(ctx context.Context, addresses []string) []place {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	found := make([]place, len(addresses))
	var looks sync.WaitGroup
	for i, address := range addresses {
		looks.Go(func() {
			found[i].address = address
			if _, found[i].resolves = net.DefaultResolver.LookupHost(ctx, hostOf(address)); found[i].resolves != nil {
				return
			}
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if found[i].connects = err; err == nil {
				_ = conn.Close() // nothing was sent
			}
		})
	}
	looks.Wait()
	return found
}

// judgePlaces judges the addresses at which others reach this server, or at which it reaches others. expected reports whether
// they should answer now.
func judgePlaces(name string, places []place, expected bool, fix string) Check {
	var all, unknown, silent []string
	for _, p := range places {
		all = append(all, p.address)
		switch {
		case p.resolves != nil:
			unknown = append(unknown, hostOf(p.address))
		case p.connects != nil:
			silent = append(silent, p.address)
		}
	}
	switch {
	case len(all) == 0:
		return skipped(name, "none is set")
	case len(unknown) > 0:
		return bad(Fail, name, "no address is known for "+listed(unknown), "correct the name, or add it to DNS; %s", fix)
	case len(silent) > 0 && expected:
		return bad(Fail, name, fmt.Sprintf("%d of %d answer; no answer: %s", len(all)-len(silent), len(all), listed(silent)), "check the firewall and the routes between the machines; %s", fix)
	case len(silent) == len(all):
		return good(name, "%s resolves; nothing listens there yet", strings.Join(all, ", "))
	case len(silent) > 0:
		return bad(Warn, name, fmt.Sprintf("%d of %d answer; no answer: %s", len(all)-len(silent), len(all), listed(silent)), "start these members, or check the firewall; %s", fix)
	}
	return good(name, "%s answers", listed(all))
}
