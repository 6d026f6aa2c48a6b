package server

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// httpsConn is an open connection for HTTP/1.1 with TLS.
type httpsConn struct {
	t    *testing.T
	conn *tls.Conn
	in   *bufio.Reader
}

func dialHTTPS(t *testing.T, addr string, config *tls.Config) *httpsConn {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, config)
	wantOK(t, err)
	t.Cleanup(func() { conn.Close() })
	wantOK(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	return &httpsConn{t, conn, bufio.NewReader(conn)}
}

// get sends a request over the connection, which stays open.
func (c *httpsConn) get(path string) error {
	if _, err := io.WriteString(c.conn, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	wantEqual(c.t, "status of "+path, resp.StatusCode, http.StatusOK)
	return err
}

// clientOf issues a certificate for clients, and returns it with the configuration of a client that shows it.
func clientOf(t *testing.T, server, clients *authority.Authority, name string) (cert []byte, config *tls.Config) {
	t.Helper()
	cert, key := clients.Issue(name)
	pair, err := tls.X509KeyPair(cert, key)
	wantOK(t, err)
	return cert, server.Trust(pair)
}

// The open connections of a client whose certificate is revoked are closed, on both ports, and it gets no new ones. Others go on.
// Lists that cannot be used change nothing.
func TestRevokedCertificatesAreRefusedAndCutOff(t *testing.T) {
	var logged syncBuffer
	ca, clients := authority.New(t, "ca"), authority.New(t, "clients")
	cfg := secured(t, ca, clients)
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	cfg.ClientCRLFile = filepath.Join(t.TempDir(), "revoked.pem")
	due := time.Now().Add(time.Hour)
	replaceFile(t, cfg.ClientCRLFile, clients.Revoke(due))
	f := startWith(t, cfg, nil)
	f.alwaysLook()
	stolen, thief := clientOf(t, ca, clients, "alice")
	_, other := clientOf(t, ca, clients, "alice")

	stream, err := pb.NewLeaseClient(f.dialTLS(thief)).LeaseKeepAlive(f.ctx())
	wantOK(t, err)
	wantOK(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: 1}))
	_, err = stream.Recv()
	wantOK(t, err)
	var open, kept []*httpsConn
	for _, addr := range []string{f.server.Addr(), f.server.HTTPAddr()} {
		open, kept = append(open, dialHTTPS(t, addr, thief)), append(kept, dialHTTPS(t, addr, other))
	}
	for _, c := range append(open, kept...) {
		wantOK(t, c.get("/version"))
	}

	replaceFile(t, cfg.ClientCRLFile, clients.Revoke(due, stolen))
	_, err = stream.Recv()
	if err == nil {
		t.Error("the stream goes on")
	}
	for _, c := range open {
		if _, err := c.in.ReadByte(); err == nil {
			t.Error("the connection sends")
		}
	}
	wantEqual(t, "closed connections", strings.Count(logged.String(), "closed because its certificate was revoked"), 3)
	wantShutOut := func() {
		t.Helper()
		wantUnavailable(t, f.over(thief), "tls: ")
		late, err := tls.Dial("tcp", f.server.HTTPAddr(), thief)
		wantOK(t, err) // in TLS 1.3 the server looks at the certificate last
		defer late.Close()
		if err := (&httpsConn{t, late, bufio.NewReader(late)}).get("/version"); err == nil {
			t.Error("the port for HTTP serves a revoked certificate")
		}
	}
	wantShutOut()
	for _, c := range kept {
		wantOK(t, c.get("/version"))
	}
	wantOK(t, f.over(other))

	for _, bad := range [][]byte{nil, authority.New(t, "clients").Revoke(due), append(clients.Revoke(due), "-----BEGIN X509 CRL-----\nMII"...)} {
		before := strings.Count(logged.String(), "list of revoked certificates is invalid")
		replaceFile(t, cfg.ClientCRLFile, bad)
		wantShutOut()
		wantShutOut()
		wantEqual(t, "complaints about one list", strings.Count(logged.String(), "list of revoked certificates is invalid")-before, 1)
	}
	replaceFile(t, cfg.ClientCRLFile, clients.Revoke(time.Now().Add(-time.Minute), stolen))
	wantShutOut() // an old list counts
	eventually(t, "the log says that the list is old", func() bool { return strings.Contains(logged.String(), "should have been replaced") })
	replaceFile(t, cfg.ClientCRLFile, clients.Revoke(due))
	wantOK(t, f.over(thief))
}

// A server does not start with a list that it cannot use.
func TestUnusableListOfRevokedCertificatesIsRefused(t *testing.T) {
	ca := authority.New(t, "ca")
	good := secured(t, ca, ca)
	good.ClientCRLFile = filepath.Join(t.TempDir(), "revoked.pem")
	due := time.Now().Add(time.Hour)
	wantOK(t, os.WriteFile(good.ClientCRLFile, ca.Revoke(due), 0o600))
	wantOK(t, good.Validate())
	for name, c := range map[string]struct {
		text   []byte
		change func(*Config)
		part   string
	}{
		"empty":                {[]byte{}, nil, "fix --client-crl"},
		"damaged":              {[]byte("-----BEGIN X509 CRL-----\nMII\n-----END X509 CRL-----\n"), nil, "fix --client-crl"},
		"something else":       {ca.PEM(), nil, "something other than an X509 CRL"},
		"another authority":    {authority.New(t, "ca").Revoke(due), nil, "no trusted authority has signed the list"},
		"absent":               {nil, func(c *Config) { c.ClientCRLFile = "/nowhere.pem" }, "/nowhere.pem"},
		"without an authority": {nil, func(c *Config) { c.ClientCAFile = "" }, "--client-crl needs --client-ca"},
	} {
		cfg := good
		if c.text != nil {
			wantOK(t, os.WriteFile(cfg.ClientCRLFile, c.text, 0o600))
		}
		if c.change != nil {
			c.change(&cfg)
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v", name, err)
		}
		wantOK(t, os.WriteFile(good.ClientCRLFile, ca.Revoke(due), 0o600))
	}
}
