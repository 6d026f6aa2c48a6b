package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/internal/certificate"
)

// lingerLimit bounds the time for which a refused connection stays open, so that the caller can read the reason.
const lingerLimit = 500 * time.Millisecond

// plainRefusal is a response in HTTP/1.1, so a client that speaks HTTP/2 without TLS stops.
const plainRefusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"The members of this cluster speak TLS only.\n"

var (
	errPlainHere = errors.New("it does not speak TLS, and this member does: configure certificates for all members, or for none")
	errTLSThere  = errors.New("it speaks TLS, which this member does not, or is no member: configure certificates for all members, or for none")
)

// openCertificates returns nil if no files are configured.
func openCertificates(cfg *Config) (*certificate.Source, error) {
	f := cfg.Files
	if f.empty() {
		return nil, nil
	}
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return nil, errors.New("--peer-cert, --peer-key and --peer-ca belong together, and --peer-crl needs them: give all three, or none")
	}
	return certificate.Open(certificate.Files{
		Cert: f.Cert, Key: f.Key, CA: f.CA, CRL: f.CRL,
		CertFlag: "--peer-cert", KeyFlag: "--peer-key", CAFlag: "--peer-ca", CRLFlag: "--peer-crl",
	}, cfg.Logger)
}

// handshake performs TLS handshakes in which both sides prove their identity with the current certificates.
type handshake struct {
	credentials.TransportCredentials
	certs  *certificate.Source
	failed func(error) // called with the reason why a dialled handshake failed
}

// credentialsFor returns the credentials for dialled connections if failed is not nil, and for accepted ones
// otherwise.
func credentialsFor(certs *certificate.Source, failed func(error)) credentials.TransportCredentials {
	if certs == nil {
		return insecure.NewCredentials()
	}
	return &handshake{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), certs, failed}
}

// tlsConfig returns the configuration of the handshake on a connection that the certificates track.
func (h *handshake) tlsConfig(tracked net.Conn) *tls.Config {
	now := h.certs.Current()
	return &tls.Config{
		VerifyConnection: h.certs.Verifier(tracked),
		MinVersion:       tls.VersionTLS12,
		Certificates:     []tls.Certificate{now.Pair},
		RootCAs:          now.CAs,
		ClientCAs:        now.CAs,
		ClientAuth:       tls.RequireAndVerifyClientCert,
		NextProtos:       []string{"h2"},
		// A resumed session would outlive the trust in the certificate with which it began.
		SessionTicketsDisabled: true,
	}
}

// ClientHandshake implements [credentials.TransportCredentials].
func (h *handshake) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tracked := h.certs.Track(raw)
	config := h.tlsConfig(tracked)
	if conn, ok := raw.(*trackedConn); ok {
		authority = conn.address
	}
	config.ServerName = authority
	if host, _, err := net.SplitHostPort(authority); err == nil {
		config.ServerName = host
	}
	conn := tls.Client(tracked, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) {
			err = errPlainHere
		}
		h.failed(err)
		return nil, nil, errors.Join(err, tracked.Close())
	}
	return secured(conn)
}

// ServerHandshake implements [credentials.TransportCredentials].
func (h *handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tracked := h.certs.Track(raw)
	conn := tls.Server(tracked, h.tlsConfig(tracked))
	if err := conn.Handshake(); err != nil {
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
			raw.SetDeadline(time.Now().Add(lingerLimit))
			io.WriteString(raw, plainRefusal) // ignore an error: the caller may be gone
		}
		linger(raw)
		return nil, nil, errors.Join(err, tracked.Close())
	}
	return secured(conn)
}

// linger waits until a refused caller closes the connection. Closing it while bytes of the caller are unread would
// discard the reason that was sent.
func linger(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(lingerLimit))
	io.Copy(io.Discard, io.LimitReader(conn, 64<<10))
}

func secured(conn *tls.Conn) (net.Conn, credentials.AuthInfo, error) {
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return nil, nil, errors.Join(errors.New("the other side does not offer HTTP/2 (ALPN)"), conn.Close())
	}
	info := credentials.TLSInfo{State: state}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return conn, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (h *handshake) Clone() credentials.TransportCredentials {
	return &handshake{h.TransportCredentials.Clone(), h.certs, h.failed}
}

// checkCertificate returns an error if the certificate shown is not for the host in an address of the member. The proof
// names a host, not a process: all processes with a certificate for one host can pass for the members there.
func checkCertificate(info credentials.AuthInfo, member uint64, address string) error {
	if host, err := checkHost(info, address); err != nil {
		return fmt.Errorf("the certificate shown is not for %s, the host of the member %x (%w): "+
			"give each member a certificate for the host in its peer URL", host, member, err)
	}
	return nil
}

// checkHost returns the host of an address, and an error if the certificate shown is not for it.
func checkHost(info credentials.AuthInfo, address string) (host string, err error) {
	if host, _, err = net.SplitHostPort(address); err != nil {
		return address, err
	}
	proof, ok := info.(credentials.TLSInfo)
	if !ok || len(proof.State.PeerCertificates) == 0 {
		return host, errors.New("none was shown")
	}
	return host, proof.State.PeerCertificates[0].VerifyHostname(host)
}
