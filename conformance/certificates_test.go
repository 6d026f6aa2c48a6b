package conformance

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/leasekeeper/leasekeeper/conformance/programs/authority"
)

// certificates are an authority, and the certificate that servers show. Servers with them speak TLS with clients, and ask for
// a certificate of the authority.
type certificates struct {
	*authority.Authority
	certFile, keyFile string
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{Authority: authority.New(t)}
	c.certFile, c.keyFile = c.Files("server")
	return c
}

// withCertificates runs a test on each target, with servers that have certificates.
func withCertificates(t *testing.T, targets []string, test func(t *testing.T, s *server, c *certificates)) {
	t.Helper()
	t.Parallel()
	for _, name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCertificates(t)
			test(t, startTargetWith(t, name, func(s *server) { s.certificates = c }), c)
		})
	}
}

// flags are those by which a server of either program speaks TLS.
func (c *certificates) flags(ours bool) []string {
	if ours {
		return []string{"--cert", c.certFile, "--key", c.keyFile, "--client-ca", c.File}
	}
	return []string{"--cert-file", c.certFile, "--key-file", c.keyFile, "--trusted-ca-file", c.File, "--client-cert-auth"}
}

// ready returns once a server is ready.
func (c *certificates) ready(s *server) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.Client("probe"), DisableKeepAlives: true}, Timeout: 5 * time.Second}
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
	conn, err := grpc.NewClient(p.s.grpcAddr, grpc.WithTransportCredentials(credentials.NewTLS(p.s.certificates.Client(commonName))))
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
		p.elections("")
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
	withCertificates(t, chosen(etcd, leasekeeper, follower), func(t *testing.T, s *server, _ *certificates) {
		p := &usersPage{s: s, tokens: make(map[string]string)}
		p.compare("testdata/users_certificates.txt", p.runWithCertificates())
	})
}

// TestCertificateOfNoUser finds the difference that docs/compatibility.md names: requests that need no permission are
// refused if the common name is no user, for example since the user was deleted. Etcd serves them.
func TestCertificateOfNoUser(t *testing.T) {
	withCertificates(t, chosen(etcd, leasekeeper, follower), func(t *testing.T, s *server, _ *certificates) {
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

// TestCertificateIsRequired finds that a client without a certificate makes no request.
func TestCertificateIsRequired(t *testing.T) {
	withCertificates(t, chosen(etcd, leasekeeper), func(t *testing.T, s *server, c *certificates) {
		config := c.Trust()
		config.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", s.grpcAddr, config)
		if err == nil {
			defer conn.Close()
			_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the refusal comes after the client's part
		}
		if err == nil {
			t.Error("a client without a certificate is served")
		}
	})
}
