package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// certificates are an authority, and the certificate that servers show. Servers with them speak TLS with clients, and ask for
// a certificate of the authority.
type certificates struct {
	t       *testing.T
	key     *ecdsa.PrivateKey
	ca      *x509.Certificate
	trusted *x509.CertPool

	caFile, certFile, keyFile string
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{t: t, trusted: x509.NewCertPool()}
	var err error
	c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	wantOK(t, "making a key", err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &c.key.PublicKey, c.key)
	wantOK(t, "making the authority", err)
	c.ca, err = x509.ParseCertificate(der)
	wantOK(t, "reading the authority", err)
	c.trusted.AddCert(c.ca)
	dir := t.TempDir()
	c.caFile, c.certFile, c.keyFile = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	c.write(c.caFile, "CERTIFICATE", der)
	own := c.issue("server")
	keyDER, err := x509.MarshalECPrivateKey(own.PrivateKey.(*ecdsa.PrivateKey))
	wantOK(t, "encoding a key", err)
	c.write(c.certFile, "CERTIFICATE", own.Certificate[0])
	c.write(c.keyFile, "EC PRIVATE KEY", keyDER)
	return c
}

func (c *certificates) write(path, kind string, der []byte) {
	c.t.Helper()
	wantOK(c.t, "writing "+path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// issue makes a certificate for a common name, for servers on this machine and for clients.
func (c *certificates) issue(commonName string) tls.Certificate {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	wantOK(c.t, "making a key", err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca, &key.PublicKey, c.key)
	wantOK(c.t, "making a certificate", err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// client is the configuration of a client with a certificate for a common name.
func (c *certificates) client(commonName string) *tls.Config {
	return &tls.Config{RootCAs: c.trusted, Certificates: []tls.Certificate{c.issue(commonName)}}
}

// flags are those by which a server of either program speaks TLS.
func (c *certificates) flags(ours bool) []string {
	if ours {
		return []string{"--cert", c.certFile, "--key", c.keyFile, "--client-ca", c.caFile}
	}
	return []string{"--cert-file", c.certFile, "--key-file", c.keyFile, "--trusted-ca-file", c.caFile, "--client-cert-auth"}
}

// ready returns once a server is ready.
func (c *certificates) ready(s *server) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.client("probe"), DisableKeepAlives: true}, Timeout: 5 * time.Second}
	var last error
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.process.Exited():
			return fmt.Errorf("ended before it was ready")
		default:
		}
		answer, err := client.Get("https://" + s.httpAddr + "/readyz")
		if last = err; err != nil {
			continue
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("status %d", answer.StatusCode)
	}
	return fmt.Errorf("not ready within %v: %w", startLimit, last)
}

// show makes further requests of the page over a connection with a certificate, as nobody else.
func (p *usersPage) show(commonName string) {
	t := p.s.t
	t.Helper()
	conn, err := grpc.NewClient(p.s.grpcAddr, grpc.WithTransportCredentials(credentials.NewTLS(p.s.certificates.client(commonName))))
	wantOK(t, "connecting", err)
	t.Cleanup(func() { conn.Close() })
	p.conn, p.auth, p.certificate = conn, pb.NewAuthClient(conn), commonName
	p.title("with a certificate of " + commonName)
}

// runWithCertificates makes the requests of users that certificates name.
func (p *usersPage) runWithCertificates() string {
	p.show("root")
	p.prepare()
	p.rootLease("")
	for i, commonName := range []string{"nosuch", "bare", "cert", "alice", "root"} {
		p.show(commonName)
		p.look("")
		p.keys("")
		p.watches("")
		p.locks("")
		if commonName == "nosuch" {
			continue // TestCertificateOfNoUser has the rest
		}
		p.cluster("")
		p.leases("", int64(100+i))
	}
	// A token counts, and not the certificate.
	p.show("root")
	p.login("alice", "a")
	p.login("root", "r")
	p.tokens["forged"] = "no.token"
	p.keys("alice")
	p.keys("forged")
	p.show("alice")
	p.keys("root")
	p.keys("forged")
	// Rights that change.
	p.show("root")
	p.manage("", &pb.AuthRoleRevokePermissionRequest{Role: "half", Key: []byte("a"), RangeEnd: []byte("c")})
	p.show("alice")
	p.keys("")
	p.watches("")
	p.show("root")
	p.manage("", &pb.AuthUserDeleteRequest{Name: "alice"})
	p.show("alice")
	p.keys("")
	p.show("nosuch")
	p.manage("", &pb.AuthDisableRequest{})
	p.show("root")
	p.manage("", &pb.AuthDisableRequest{})
	return p.out.String()
}

// TestUsersOfCertificatesGetEtcdsAnswers makes the same requests with certificates whose common names are users or are none,
// and with a token beside a certificate, and compares the answers with those of etcd, which testdata/users_certificates.txt
// has.
func TestUsersOfCertificatesGetEtcdsAnswers(t *testing.T) {
	t.Parallel()
	for _, name := range chosen(etcd, leasekeeper, follower) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCertificates(t)
			s := startTargetWith(t, name, func(s *server) { s.certificates = c })
			p := &usersPage{s: s, tokens: make(map[string]string)}
			p.compare("testdata/users_certificates.txt", p.runWithCertificates())
		})
	}
}

// TestCertificateOfNoUser finds the difference that docs/compatibility.md names: requests that need no permission are
// refused if the common name is no user, for example since the user was deleted. Etcd serves them.
func TestCertificateOfNoUser(t *testing.T) {
	t.Parallel()
	for _, name := range chosen(etcd, leasekeeper, follower) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCertificates(t)
			s := startTargetWith(t, name, func(s *server) { s.certificates = c })
			p := &usersPage{s: s, tokens: make(map[string]string)}
			p.show("root")
			p.prepare()
			p.show("nosuch")
			want := codes.PermissionDenied
			if s.target == etcd {
				want = codes.OK
			}
			leases := pb.NewLeaseClient(p.conn)
			_, err := leases.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 600, ID: 1})
			wantEqual(t, "grant", codeOf(err), want)
			_, err = leases.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: 1})
			wantEqual(t, "time to live", codeOf(err), want)
			_, err = pb.NewMaintenanceClient(p.conn).Status(s.context(), &pb.StatusRequest{})
			wantEqual(t, "status", codeOf(err), want)
			_, err = pb.NewClusterClient(p.conn).MemberList(s.context(), &pb.MemberListRequest{Linearizable: true})
			wantEqual(t, "list members", codeOf(err), want)
		})
	}
}

// TestCertificateIsRequired finds that a client without a certificate makes no request.
func TestCertificateIsRequired(t *testing.T) {
	t.Parallel()
	for _, name := range chosen(etcd, leasekeeper) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCertificates(t)
			s := startTargetWith(t, name, func(s *server) { s.certificates = c })
			conn, err := tls.Dial("tcp", s.grpcAddr, &tls.Config{RootCAs: c.trusted, NextProtos: []string{"h2"}})
			if err == nil {
				defer conn.Close()
				_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the refusal comes after the client's part
			}
			if err == nil {
				t.Error("a client without a certificate is served")
			}
		})
	}
}
