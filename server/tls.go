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
	// handshakeLimit bounds how long a connection may take until it can carry requests.
	handshakeLimit = 20 * time.Second
	// lingerLimit bounds how long one that is refused is kept so that it can read why.
	lingerLimit = time.Second
)

// reasonPlain counts connections that did not begin with a handshake.
const reasonPlain = "no_tls"

// checkTLS says what is wrong with the files that the configuration names. It reads them.
func (c Config) checkTLS() error {
	switch {
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("--cert and --key belong together: give both for TLS, or neither")
	case c.CertFile == "" && c.ClientCAFile != "":
		return errors.New("--client-ca needs --cert and --key: without TLS no client shows a certificate")
	case c.CertFile == "":
		return nil
	}
	_, err := c.certificateFiles().Read()
	return err
}

// scheme is that of the URLs by which clients reach the server.
func (c Config) scheme() string {
	if c.CertFile != "" {
		return "https"
	}
	return "http"
}

// certificates are what the server shows to its clients and by what it knows them.
type certificates struct{ source *certificate.Source }

// certificateFiles names the files, and the flags that people set them with.
func (c Config) certificateFiles() certificate.Files {
	return certificate.Files{
		Cert: c.CertFile, Key: c.KeyFile, CA: c.ClientCAFile, CertFlag: "--cert", KeyFlag: "--key", CAFlag: "--client-ca",
	}
}

// newCertificates returns nil if the configuration names none.
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

// connections are made with what is in force.
func connections(f *certificate.InForce) *tls.Config {
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{f.Pair},
		// A session that is taken up again would outlive the trust in the certificate that it began with.
		SessionTicketsDisabled: true,
	}
	if f.CAs != nil {
		config.ClientCAs, config.ClientAuth = f.CAs, tls.RequireAndVerifyClientCert
	}
	return config
}

// config is for one listener, which speaks one protocol.
func (c *certificates) config(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{protocol},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := connections(c.source.Current())
			config.NextProtos = []string{protocol}
			return config, nil
		},
	}
}

// register has the end of the certificate among the metrics, so that somebody hears of it before it comes.
func (c *certificates) register(registry *prometheus.Registry) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasekeeper_tls_certificate_expiry_timestamp_seconds",
		Help: "When the certificate that clients are shown ends, in seconds since 1970.",
	}, func() float64 { return float64(c.source.Current().Expiry().Unix()) }))
}

// onlyTLS lets a gRPC connection begin with a handshake, and tells those who begin otherwise.
type onlyTLS struct {
	credentials.TransportCredentials
	config  *tls.Config
	refused func(net.Addr) // told of each client that does not speak TLS
}

func newOnlyTLS(config *tls.Config, refused func(net.Addr)) *onlyTLS {
	return &onlyTLS{credentials.NewTLS(config), config, refused}
}

// ServerHandshake implements [credentials.TransportCredentials].
func (o *onlyTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw, o.config)
	if err := conn.Handshake(); err != nil {
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
			o.refused(raw.RemoteAddr())
			raw.SetDeadline(time.Now().Add(lingerLimit))
			io.WriteString(raw, plainRefusal) // or not: it has gone
		}
		linger(raw)
		return nil, nil, errors.Join(err, conn.Close())
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == "" {
		return nil, nil, errors.Join(errors.New("the client does not offer HTTP/2 (ALPN)"), conn.Close())
	}
	info := credentials.TLSInfo{State: state}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return newMetered(conn), info, nil
}

// Clone implements [credentials.TransportCredentials].
func (o *onlyTLS) Clone() credentials.TransportCredentials {
	return newOnlyTLS(o.config.Clone(), o.refused)
}

// plainRefusal is for people to read, and gRPC's libraries take it for the mistake that it is. It is not
// HTTP/2: a client that gets that far would send its requests in the clear.
const plainRefusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"This server speaks TLS only: connect with https.\n"

// linger waits for a client to go that was told why it is refused. To close while something of it is unread
// would take the reason back.
func linger(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(lingerLimit))
	io.Copy(io.Discard, io.LimitReader(conn, 64<<10))
}

// beyondLoopback says whether others than programs on this machine can connect.
func beyondLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// overTLS is for the listener that is not gRPC's, which does its own handshakes.
func (s *Server) overTLS(l net.Listener) net.Listener {
	if s.certs == nil {
		return l
	}
	return tls.NewListener(l, s.certs.config("http/1.1"))
}

// refusedPlain counts a client that does not speak TLS.
func (s *Server) refusedPlain(from net.Addr) {
	s.metrics.Refuse(reasonPlain)
	s.log.Debug("a client that does not speak TLS was refused", "from", from)
}

// warnOfOpenAccess warns that anybody who reaches the port from another machine can do everything.
func (s *Server) warnOfOpenAccess() {
	if s.certs == nil && beyondLoopback(s.grpcListener.Addr()) {
		s.log.Warn("clients beyond this machine are served without TLS: whoever reaches the port can read and "+
			"change everything; see --cert, --key and --client-ca", "grpc", address(s.grpcListener))
	}
}
