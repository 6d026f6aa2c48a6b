package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/leasekeeper/leasekeeper/internal/certificate"
)

const (
	// handshakeLimit bounds the time from accepting a connection until it can carry requests.
	handshakeLimit = 20 * time.Second
	// lingerLimit bounds how long the server keeps a refused connection open, so that the client can read the reason.
	lingerLimit = time.Second
)

// reasonPlain is the metric label of connections that did not begin with a TLS handshake.
const reasonPlain = "no_tls"

// checkTLS returns what is wrong with the certificate files of the configuration. It reads them.
func (c Config) checkTLS() error {
	switch {
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("--cert and --key belong together: give both for TLS, or neither")
	case c.CertFile == "" && c.ClientCAFile != "":
		return errors.New("--client-ca needs --cert and --key: without TLS no client shows a certificate")
	case c.ClientCAFile == "" && c.ClientCRLFile != "":
		return errors.New("--client-crl needs --client-ca: without it no client shows a certificate")
	case c.CertFile == "":
		return nil
	}
	return c.certificateFiles().Check()
}

// scheme returns the scheme of the URLs at which clients reach the server.
func (c Config) scheme() string {
	if c.CertFile != "" {
		return "https"
	}
	return "http"
}

// certificates are the server's own certificate and the authorities that it trusts for clients. They are reloaded when
// their files change.
type certificates struct{ source *certificate.Source }

// certificateFiles returns the files, with the flags that set them, for errors.
func (c Config) certificateFiles() certificate.Files {
	return certificate.Files{
		Cert: c.CertFile, Key: c.KeyFile, CA: c.ClientCAFile, CRL: c.ClientCRLFile,
		CertFlag: "--cert", KeyFlag: "--key", CAFlag: "--client-ca", CRLFlag: "--client-crl",
	}
}

// newCertificates returns nil if the configuration names no certificate.
func newCertificates(cfg Config) (*certificates, error) {
	if cfg.CertFile == "" {
		return nil, nil
	}
	source, err := certificate.Open(cfg.certificateFiles(), cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &certificates{source}, nil
}

// connectionConfig returns the TLS configuration of a new connection, made of the certificates in force.
func connectionConfig(f *certificate.InForce) *tls.Config {
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{f.Pair},
		// A resumed session would outlive the trust in the certificate with which it began.
		SessionTicketsDisabled: true,
	}
	if f.CAs != nil {
		config.ClientCAs, config.ClientAuth = f.CAs, tls.RequireAndVerifyClientCert
	}
	return config
}

// tlsConfig returns the TLS configuration of a listener that speaks protocols, the preferred one first. Its connections must
// be tracked by the source.
func (c *certificates) tlsConfig(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config := connectionConfig(c.source.Current())
			config.NextProtos, config.VerifyConnection = protocols, c.source.Verifier(hello.Conn)
			return config, nil
		},
	}
}

// register adds the expiry of the certificate to the metrics, so that an alert can precede it.
func (c *certificates) register(registry *prometheus.Registry) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasekeeper_tls_certificate_expiry_timestamp_seconds",
		Help: "When the certificate for clients expires, in seconds since 1970.",
	}, func() float64 { return float64(c.source.Current().Expiry().Unix()) }))
}

// onlyTLS requires a TLS handshake on each connection of the client port, and explains the refusal to clients without one.
type onlyTLS struct {
	credentials.TransportCredentials
	config  *tls.Config
	source  *certificate.Source
	refused func(net.Addr) // called for each client that does not speak TLS
}

func newOnlyTLS(certs *certificates, refused func(net.Addr)) *onlyTLS {
	config := certs.tlsConfig("h2", "http/1.1")
	return &onlyTLS{credentials.NewTLS(config), config, certs.source, refused}
}

// handshake makes the handshake with one client. If that fails, it closes the connection.
func (o *onlyTLS) handshake(raw net.Conn) (*tls.Conn, error) {
	conn := tls.Server(o.source.Track(raw), o.config)
	if err := conn.Handshake(); err != nil {
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
			o.refused(raw.RemoteAddr())
			raw.SetDeadline(time.Now().Add(lingerLimit))
			io.WriteString(raw, plainRefusal) // fails if the client has gone
		}
		linger(raw)
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// plainRefusal is readable for people, and gRPC libraries report it as a protocol error. It must not be HTTP/2: a
// client that accepted it would send its requests unencrypted.
const plainRefusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"This server speaks TLS only: connect with https.\n"

// linger waits until a refused client closes the connection, so that it can read the reason. Closing a connection with
// unread input would discard the reason.
func linger(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(lingerLimit))
	io.Copy(io.Discard, io.LimitReader(conn, 64<<10))
}

// beyondLoopback reports whether programs on other machines can connect to addr.
func beyondLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// withTLS returns a TLS listener for HTTP. It returns l itself if the server has no certificate.
func (s *Server) withTLS(l net.Listener) net.Listener {
	if s.certs == nil {
		return l
	}
	return tls.NewListener(trackingListener{l, s.certs.source}, s.certs.tlsConfig("http/1.1"))
}

// trackingListener lets the source close its connections when their certificates are revoked.
type trackingListener struct {
	net.Listener
	source *certificate.Source
}

// Accept implements [net.Listener].
func (l trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.source.Track(conn), nil
}

// plainConnectionRefused counts a client that does not speak TLS.
func (s *Server) plainConnectionRefused(from net.Addr) {
	s.metrics.Refuse(reasonPlain)
	s.log.Debug("a client that does not speak TLS was refused", "from", from)
}

// warnOfOpenAccess logs a warning if other machines can reach the port without TLS, since any of them can then do
// everything.
func (s *Server) warnOfOpenAccess() {
	if s.certs == nil && beyondLoopback(s.grpcListener.Addr()) {
		s.log.Warn("clients on other machines are served without TLS: any program that reaches the port can read and "+
			"change everything; see --cert, --key and --client-ca", "grpc", address(s.grpcListener))
	}
}
