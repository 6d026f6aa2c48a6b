package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// files returns certificate files for a host that trust another authority's certificates.
func filesOf(t testing.TB, a *authority.Authority, host string, trusted *authority.Authority) CertificateFiles {
	t.Helper()
	dir := t.TempDir()
	f := CertificateFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	writeFiles(t, f, a, host, trusted)
	return f
}

func writeFiles(t testing.TB, f CertificateFiles, a *authority.Authority, host string, trusted *authority.Authority) {
	t.Helper()
	cert, key := a.Issue("member", host)
	for name, text := range map[string][]byte{f.Cert: cert, f.Key: key, f.CA: trusted.PEM()} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const here = "127.0.0.1"

// startWith starts a member with certificates, or without if files is empty.
func (g *cluster) startWith(id uint64, files CertificateFiles) *member {
	g.t.Helper()
	m := g.start(id, func(c *Config, _ *member) { c.Files = files })
	if m.certs != nil {
		m.certs.LookEvery(0)
	}
	return m
}

func TestMembersWithCertificatesConnect(t *testing.T) {
	ca := authority.New(t, "authority")
	g := newCluster(t, 1, 2)
	a, b := g.startWith(1, filesOf(t, ca, here, ca)), g.startWith(2, filesOf(t, ca, here, ca))
	a.awaitConnected(2)
	a.Send(2, true, []byte("secret"))
	b.wantNext(1, "secret")
	if err := ship(t, a, b, 1<<20); err != nil {
		t.Error(err)
	}
}

func TestUnknownPeersAreRefused(t *testing.T) {
	ca, other := authority.New(t, "authority"), authority.New(t, "authority")
	for name, c := range map[string]struct {
		a, b CertificateFiles
		// The error at each side; "" if it connects.
		aSays, bSays string
	}{
		"a without TLS":       {CertificateFiles{}, filesOf(t, ca, here, ca), "it speaks TLS, which this member does not", "does not speak TLS"},
		"a of another CA":     {filesOf(t, other, here, ca), filesOf(t, ca, here, ca), "unknown certificate authority", "unknown authority"},
		"a of another host":   {filesOf(t, ca, "elsewhere.example", ca), filesOf(t, ca, here, ca), "has not proven to be a member", "127.0.0.1"},
		"each of its own CA":  {filesOf(t, other, here, other), filesOf(t, ca, here, ca), "unknown authority", "unknown authority"},
		"a trusts another CA": {filesOf(t, ca, here, other), filesOf(t, ca, here, ca), "unknown authority", "unknown certificate authority"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newCluster(t, 1, 2)
			a, b := g.startWith(1, c.a), g.startWith(2, c.b)
			a.awaitRefusal(2, c.aSays)
			b.awaitRefusal(1, c.bSays)
			if a.peer(2).Listening || b.peer(1).Listening {
				t.Error("a peer was accepted")
			}
		})
	}
}

// A caller without a certificate is refused before it can send a Hello.
func TestCertificateIsRequired(t *testing.T) {
	ca := authority.New(t, "authority")
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.startWith(1, filesOf(t, ca, here, ca))
	conn := must[*grpc.ClientConn](t)(grpc.NewClient(g.members[1], grpc.WithTransportCredentials(credentials.NewTLS(ca.Trust()))))
	defer conn.Close()
	ctx := metadata.NewOutgoingContext(within(t), metadata.Pairs(helloKey, helloFrom(a, 2)))
	stream, err := peerpb.NewPeerClient(conn).Urgent(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	// The client's error depends on which side closes the connection first.
	if err == nil || a.peer(2).Listening || !a.peer(2).Heard.IsZero() {
		t.Errorf("one without a certificate was accepted: %v", err)
	}
}

// helloFrom returns the Hello that another member would send to this one.
func helloFrom(m *member, from uint64) string {
	cfg := m.cfg
	cfg.Self = from
	other := &Transport{cfg: cfg}
	other.known.Store(m.known.Load())
	return other.hello(m.cfg.Self).Get(helloKey)[0]
}

func TestChangedCertificatesAreUsed(t *testing.T) {
	old, young := authority.New(t, "authority"), authority.New(t, "authority")
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	aFiles, bFiles := filesOf(t, old, here, old), filesOf(t, old, here, old)
	a, b := g.startWith(1, aFiles), g.startWith(2, bFiles)
	before := a.awaitConnected(2)

	writeFiles(t, bFiles, young, here, young)
	p.reset()
	a.await("refused", 2, func(s PeerStatus) bool { // b's authority is not trusted by a
		return !s.Connected && strings.Contains(s.Err.Error(), "certificate")
	})

	writeFiles(t, aFiles, young, here, young)
	a.await("connected again", 2, func(s PeerStatus) bool { return s.Connected && s.Since.After(before.Since) })
	a.Send(2, true, []byte("renewed"))
	b.wantNext(1, "renewed")

	// Invalid files change nothing.
	if err := os.WriteFile(bFiles.Cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	before = a.peer(2)
	p.reset()
	a.await("connected again", 2, func(s PeerStatus) bool { return s.Connected && s.Since.After(before.Since) })
	if b.log.count("files are invalid") != 1 {
		t.Errorf("logged %d times", b.log.count("files are invalid"))
	}
}

func TestInvalidCertificateFilesAreRefused(t *testing.T) {
	ca := authority.New(t, "authority")
	whole := filesOf(t, ca, here, ca)
	gone := whole
	gone.CA = filepath.Join(t.TempDir(), "gone")
	for part, files := range map[string]CertificateFiles{
		"belong together": {Cert: whole.Cert, Key: whole.Key},
		"--peer-ca":       gone,
		"--peer-cert":     {Cert: whole.CA, Key: whole.Key, CA: whole.CA},
	} {
		g := newCluster(t, 1)
		defer g.listeners[1].Close()
		_, err := New(Config{
			Self: 1, ClusterID: 1, Incarnation: 1, Members: g.members, Listener: g.listeners[1], Files: files,
			Receive: func(uint64, uint64, []byte) {}, ReceiveState: (&member{}).receiveNothing,
		})
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not contain %q", err, part)
		}
	}
}

// Members close their connections with a member whose certificate is revoked, in both directions, and open no new ones.
func TestRevokedMembersAreRefusedAndCutOff(t *testing.T) {
	ca := authority.New(t, "authority")
	g := newCluster(t, 1, 2)
	aFiles, bFiles := filesOf(t, ca, here, ca), filesOf(t, ca, here, ca)
	aFiles.CRL = filepath.Join(t.TempDir(), "revoked.pem")
	list := func(revoked ...[]byte) {
		t.Helper()
		if err := os.WriteFile(aFiles.CRL+".new", ca.Revoke(time.Now().Add(time.Hour), revoked...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(aFiles.CRL+".new", aFiles.CRL); err != nil {
			t.Fatal(err)
		}
	}
	list()
	a, b := g.startWith(1, aFiles), g.startWith(2, bFiles)
	a.awaitConnected(2)
	b.awaitConnected(1)
	list(must[[]byte](t)(os.ReadFile(bFiles.Cert)))
	a.await("refused", 2, func(s PeerStatus) bool { return !s.Connected && strings.Contains(s.Err.Error(), "is revoked") })
	b.await("cut off", 1, func(s PeerStatus) bool { return !s.Connected })
	list()
	a.awaitConnected(2)
	b.awaitConnected(1)
}

func TestListOfRevokedMembersMustBeTheirAuthoritys(t *testing.T) {
	ca := authority.New(t, "authority")
	files := filesOf(t, ca, here, ca)
	files.CRL = filepath.Join(t.TempDir(), "revoked.pem")
	if err := os.WriteFile(files.CRL, authority.New(t, "authority").Revoke(time.Now().Add(time.Hour)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCertificates(&Config{Files: files}); err == nil || !strings.Contains(err.Error(), "--peer-crl") {
		t.Errorf("%v does not name the flag", err)
	}
	if _, err := openCertificates(&Config{Files: CertificateFiles{CRL: files.CRL}}); err == nil || !strings.Contains(err.Error(), "--peer-crl needs them") {
		t.Errorf("%v does not name the flag", err)
	}
}
