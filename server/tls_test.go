package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// secured returns a configuration whose certificate files belong to this test.
func secured(t testing.TB, ca, clientCA *authority.Authority) Config {
	t.Helper()
	dir := t.TempDir()
	cfg := anyPort()
	cfg.CertFile, cfg.KeyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	renew(t, cfg, ca)
	if clientCA != nil {
		cfg.ClientCAFile = filepath.Join(dir, "clients.pem")
		wantOK(t, os.WriteFile(cfg.ClientCAFile, clientCA.PEM(), 0o600))
	}
	return cfg
}

// renew writes a new certificate into the files.
func renew(t testing.TB, cfg Config, ca *authority.Authority) {
	t.Helper()
	cert, key := ca.Issue("server")
	wantOK(t, os.WriteFile(cfg.CertFile, cert, 0o600))
	wantOK(t, os.WriteFile(cfg.KeyFile, key, 0o600))
}

// alwaysLook makes every handshake check the files.
func (f *front) alwaysLook() {
	f.server.certs.source.LookEvery(0)
}

// dialTLS connects with TLS.
func (f *front) dialTLS(config *tls.Config) *grpc.ClientConn {
	f.t.Helper()
	conn, err := grpc.NewClient(f.server.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	wantOK(f.t, err)
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// over connects with TLS and sends a request.
func (f *front) over(config *tls.Config) error {
	f.t.Helper()
	conn, err := grpc.NewClient(f.server.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	wantOK(f.t, err)
	defer conn.Close()
	_, err = pb.NewKVClient(conn).Range(f.ctx(), &pb.RangeRequest{Key: []byte("a")})
	return err
}

func wantUnavailable(t testing.TB, err error, part string) {
	t.Helper()
	wantCode(t, err, codes.Unavailable)
	if text := status.Convert(err).Message(); !strings.Contains(text, part) {
		t.Errorf("%q does not speak of %q", text, part)
	}
}

func TestTLSRefusesOldVersionsAndClientsWithoutALPN(t *testing.T) {
	ca := authority.New(t, "ca")
	f := startWith(t, secured(t, ca, nil), nil)
	wantOK(t, f.over(ca.Trust()))
	wantUnavailable(t, f.over(authority.New(t, "other").Trust()), "certificate signed by unknown authority")

	old := ca.Trust()
	old.MaxVersion = tls.VersionTLS12
	wantOK(t, f.over(old))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	wantUnavailable(t, f.over(old), "protocol version")
	withoutALPN, err := tls.Dial("tcp", f.server.Addr(), ca.Trust())
	wantOK(t, err)
	defer withoutALPN.Close()
	_, err = io.WriteString(withoutALPN, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	wantOK(t, err)
	if answer, _ := io.ReadAll(withoutALPN); len(answer) > 0 {
		t.Errorf("a client of HTTP/2 without ALPN received %q", answer)
	}

	members, err := pb.NewClusterClient(f.dialTLS(ca.Trust())).MemberList(f.ctx(), &pb.MemberListRequest{})
	wantOK(t, err)
	wantEqual(t, "URL", members.Members[0].ClientURLs[0], "https://"+f.server.Addr())
}

// A client that does not speak TLS receives a text that says so, if it can read it.
func TestTLSExplainsItselfToPlainClients(t *testing.T) {
	f := startWith(t, secured(t, authority.New(t, "ca"), nil), nil)
	_, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a")})
	wantUnavailable(t, err, "looked like an HTTP/1.1 header")

	conn, err := net.Dial("tcp", f.server.Addr())
	wantOK(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	wantOK(t, err)
	conn.SetReadDeadline(time.Now().Add(waitLimit))
	received, err := io.ReadAll(conn)
	wantOK(t, err)
	if text := string(received); !strings.HasPrefix(text, "HTTP/1.1 400 ") || !strings.Contains(text, "connect with https") {
		t.Errorf("received %q", text)
	}

	resp, err := http.Get("http://" + f.server.HTTPAddr() + "/health")
	wantOK(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	wantEqual(t, "status", resp.StatusCode, http.StatusBadRequest)
	if !strings.Contains(string(body), "HTTPS server") {
		t.Errorf("received %q", body)
	}
	if n := f.server.metrics.refused[reasonPlain].Load(); n < 2 {
		t.Errorf("counted %d clients without TLS", n)
	}
}

func TestMutualTLSRequiresClientCertificates(t *testing.T) {
	ca, clients := authority.New(t, "ca"), authority.New(t, "clients")
	f := startWith(t, secured(t, ca, clients), nil)
	wantOK(t, f.over(ca.Trust(clients.Pair("client"))))
	wantUnavailable(t, f.over(ca.Trust()), "certificate required")
	wantUnavailable(t, f.over(ca.Trust(authority.New(t, "others").Pair("client"))), "tls: ")
	// The authority of the server's certificate is not trusted for clients.
	wantUnavailable(t, f.over(ca.Trust(ca.Pair("client"))), "tls: ")

	get := func(config *tls.Config) (string, error) {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + f.server.HTTPAddr() + "/metrics")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	body, err := get(ca.Trust(clients.Pair("client")))
	wantOK(t, err)
	if !strings.Contains(body, "leasekeeper_tls_certificate_expiry_timestamp_seconds") {
		t.Error("no metric tells when the certificate ends")
	}
	if _, err := get(ca.Trust()); err == nil {
		t.Error("HTTP served a client without a certificate")
	}
}

// A changed certificate is used for the next connection. An invalid one has no effect, and is logged once.
func TestTLSReloadsChangedFiles(t *testing.T) {
	var logged syncBuffer
	first, second := authority.New(t, "first"), authority.New(t, "second")
	cfg := secured(t, first, first)
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	f := startWith(t, cfg, nil)
	f.alwaysLook()
	wantOK(t, f.over(first.Trust(first.Pair("client"))))
	kept := f.dialTLS(first.Trust(first.Pair("client")))
	asked := func() error {
		_, err := pb.NewKVClient(kept).Range(f.ctx(), &pb.RangeRequest{Key: []byte("a")})
		return err
	}
	wantOK(t, asked())

	wantOK(t, os.WriteFile(cfg.CertFile, []byte("half of it"), 0o600))
	for range 3 {
		wantOK(t, f.over(first.Trust(first.Pair("client"))))
	}
	wantEqual(t, "complaints", strings.Count(logged.String(), "files are invalid"), 1)
	wantOK(t, os.Remove(cfg.KeyFile))
	wantOK(t, f.over(first.Trust(first.Pair("client"))))

	renew(t, cfg, second)
	wantOK(t, f.over(second.Trust(first.Pair("client"))))
	wantUnavailable(t, f.over(first.Trust(first.Pair("client"))), "unknown authority")
	wantOK(t, os.WriteFile(cfg.ClientCAFile, second.PEM(), 0o600))
	wantOK(t, f.over(second.Trust(second.Pair("client"))))
	wantUnavailable(t, f.over(second.Trust(first.Pair("client"))), "tls: ")
	wantOK(t, asked()) // an open connection stays
	if !strings.Contains(logged.String(), "the certificates have changed") {
		t.Error("the change is not in the log")
	}
}

func TestInvalidTLSConfigIsRefused(t *testing.T) {
	ca := authority.New(t, "ca")
	good := secured(t, ca, ca)
	wantOK(t, good.Validate())
	other := secured(t, ca, nil)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	wantOK(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		change func(*Config)
		part   string
	}{
		"no key":          {func(c *Config) { c.KeyFile = "" }, "belong together"},
		"no cert":         {func(c *Config) { c.CertFile = "" }, "belong together"},
		"only client-ca":  {func(c *Config) { c.CertFile, c.KeyFile = "", "" }, "--client-ca needs"},
		"no such file":    {func(c *Config) { c.CertFile = "/nowhere.pem" }, "/nowhere.pem"},
		"another's key":   {func(c *Config) { c.KeyFile = other.KeyFile }, "does not match"},
		"no such CA":      {func(c *Config) { c.ClientCAFile = "/nowhere.pem" }, "--client-ca"},
		"empty CA":        {func(c *Config) { c.ClientCAFile = empty }, "no certificate in"},
		"advertised http": {func(c *Config) { c.Advertise = []string{"http://here:2379"} }, "without TLS"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := New(cfg, startNode(t)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good.Advertise = []string{"here:2379", "https://there:2379"}
	wantOK(t, good.Validate())
	u, err := clientURL("here:2379", good.scheme())
	wantOK(t, err)
	wantEqual(t, "URL", u, "https://here:2379")
}

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		l.Close()
	}
	return err == nil
}

func TestWarnsOfListeningWithoutTLS(t *testing.T) {
	for _, c := range []struct {
		listen string
		ca     *authority.Authority
		warned bool
	}{
		{"127.0.0.1:0", nil, false}, {"[::1]:0", nil, false}, {":0", nil, true}, {":0", authority.New(t, "ca"), false},
	} {
		if c.listen == "[::1]:0" && !hasIPv6() {
			continue
		}
		var logged syncBuffer
		cfg := anyPort()
		if c.ca != nil {
			cfg = secured(t, c.ca, nil)
		}
		cfg.ListenClient, cfg.Advertise = c.listen, []string{"here:2379"}
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		s, err := New(cfg, startNode(t))
		wantOK(t, err)
		wantOK(t, s.Start())
		wantOK(t, s.Stop(context.Background()))
		wantEqual(t, c.listen+": warned", strings.Contains(logged.String(), "without TLS"), c.warned)
	}
}
