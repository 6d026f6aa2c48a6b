package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// rotated is a cluster with certificates everywhere, whose files a test replaces under load.
type rotated struct {
	t       *testing.T
	members []*rotatedMember
	tr      *trio
	shown   atomic.Pointer[tls.Config] // what clients that connect now show and trust
	clients []*loadClient
	ended   atomic.Bool
	running sync.WaitGroup
	puts    atomic.Int64 // acknowledged below "w/"
	stalled atomic.Int64 // the longest time, in nanoseconds, for which this process did not run

	mu     sync.Mutex
	failed []error
}

// stallLimit is how long this process may stand still in a test whose calls must not fail: members close a connection
// on which a ping stays without an answer for longer.
const stallLimit = time.Second

// watchStalls notes for how long this process stands still.
func (r *rotated) watchStalls() {
	r.running.Go(func() {
		for last := time.Now(); !r.ended.Load(); {
			time.Sleep(10 * time.Millisecond)
			now := time.Now()
			r.stalled.Store(max(r.stalled.Load(), int64(now.Sub(last))))
			last = now
		}
	})
}

func (r *rotated) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Errorf(format, args...))
}

// failure returns what has failed so far.
func (r *rotated) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failed...)
}

// conclude fails the test if a call has failed. It returns false if the machine kept this process from running: then a
// failed call says nothing.
func (r *rotated) conclude() bool {
	r.t.Helper()
	switch err := r.failure(); {
	case err != nil && r.stalled.Load() > int64(stallLimit):
		r.t.Logf("this process did not run for %v, so that members lost their connections: %v", time.Duration(r.stalled.Load()), err)
		return false
	case err != nil:
		r.t.Fatal(err)
	}
	return true
}

// rotatedMember has the paths of a member's files.
type rotatedMember struct {
	*trioMember
	cfg       Config
	peerFiles peer.CertificateFiles
	peerAddr  string
}

// loadClient repeats a call until the test ends it.
type loadClient struct {
	name  string
	calls atomic.Int64
}

func startRotated(t *testing.T, ca *authority.Authority) *rotated {
	t.Helper()
	r := &rotated{t: t}
	r.tr = startEachOfTrio(t, waitLimit, func(cfg *Config, inCluster *node.ClusterConfig, peers *peer.Config) {
		dir := t.TempDir()
		m := &rotatedMember{peerAddr: peers.Listener.Addr().String(), peerFiles: peer.CertificateFiles{
			Cert: filepath.Join(dir, "peer.pem"), Key: filepath.Join(dir, "peer.key"), CA: filepath.Join(dir, "peer-ca.pem"),
		}}
		cfg.CertFile, cfg.KeyFile, cfg.ClientCAFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
		m.replace(t, ca, *cfg)
		m.trust(t, *cfg, ca)
		peers.Files = m.peerFiles
		// A machine under load may stop this process for seconds, which is no matter of certificates.
		peers.Silence, inCluster.ElectionTimeout = waitLimit, 3*time.Second
		m.cfg = *cfg
		r.members = append(r.members, m)
	})
	for i, m := range r.tr.members {
		r.members[i].trioMember = m
	}
	r.show(ca, ca.PEM())
	return r
}

// replace gives a member new certificates for its ports.
func (m *rotatedMember) replace(t *testing.T, ca *authority.Authority, cfg Config) {
	t.Helper()
	for _, files := range [][2]string{{cfg.CertFile, cfg.KeyFile}, {m.peerFiles.Cert, m.peerFiles.Key}} {
		cert, key := ca.Issue("member")
		replaceFile(t, files[0], cert)
		replaceFile(t, files[1], key)
	}
}

// trust makes a member trust authorities, on both ports.
func (m *rotatedMember) trust(t *testing.T, cfg Config, authorities ...*authority.Authority) {
	t.Helper()
	replaceFile(t, cfg.ClientCAFile, bundle(authorities...))
	replaceFile(t, m.peerFiles.CA, bundle(authorities...))
}

func bundle(authorities ...*authority.Authority) (text []byte) {
	for _, a := range authorities {
		text = append(text, a.PEM()...)
	}
	return text
}

// show gives new connections of clients a certificate, and the authorities that they trust.
func (r *rotated) show(ca *authority.Authority, trusted []byte) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	r.shown.Store(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{ca.Pair("client")}})
}

// port is a port of a member.
type port struct {
	addr, protocol, certFile string
}

// ports returns the port for clients, the one for HTTP and the one for members.
func (m *rotatedMember) ports() []port {
	return []port{
		{m.server.Addr(), "h2", m.cfg.CertFile}, {m.server.HTTPAddr(), "http/1.1", m.cfg.CertFile}, {m.peerAddr, "h2", m.peerFiles.Cert},
	}
}

// probe makes a handshake with a port, and returns the certificate of the member. In TLS 1.3 the answer to a read says whether
// the client's own was accepted.
func (p port) probe(config *tls.Config) (leaf *x509.Certificate, err error) {
	config = config.Clone()
	config.NextProtos = []string{p.protocol}
	conn, err := tls.Dial("tcp", p.addr, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	leaf = conn.ConnectionState().PeerCertificates[0]
	if p.protocol == "h2" { // a server of HTTP/2 sends its settings once the handshake is over
		_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	} else {
		_, err = io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return leaf, err
}

// everyPort waits until a handshake with each port has an outcome.
func (r *rotated) everyPort(what string, config *tls.Config, holds func(leaf *x509.Certificate, err error) bool) {
	r.t.Helper()
	for _, m := range r.members {
		for _, p := range m.ports() {
			eventually(r.t, what, func() bool { return r.failure() != nil || holds(p.probe(config)) })
		}
	}
}

// isRefused reports whether a member has refused a certificate of a client, and said so.
func isRefused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "remote error: tls: ")
}

// mustHaveOnly connects to each port once more. The member shows the certificate in its file to a client that trusts only the
// newest authority and shows a certificate of it. It refuses a client with a certificate of an earlier authority, whatever
// that client trusts. A client that trusts only the earlier authority refuses the member.
func (r *rotated) mustHaveOnly(newest *authority.Authority, earlier ...*authority.Authority) {
	r.t.Helper()
	for _, m := range r.members {
		for _, p := range m.ports() {
			text, err := os.ReadFile(p.certFile)
			wantOK(r.t, err)
			block, _ := pem.Decode(text)
			eventually(r.t, "the member shows the certificate in its file", func() bool {
				leaf, err := p.probe(newest.Trust(newest.Pair("client")))
				wantOK(r.t, err)
				return bytes.Equal(leaf.Raw, block.Bytes)
			})
			for i, old := range earlier {
				if _, err := p.probe(old.Trust(newest.Pair("client"))); !errors.As(err, new(x509.UnknownAuthorityError)) {
					r.t.Errorf("%s to a client that trusts only authority %d: %v", p.addr, i, err)
				}
				stale := newest.Trust(old.Pair("client"))
				eventually(r.t, "the member says that it refuses the certificate", func() bool { // a reset may come before the word
					_, err := p.probe(stale)
					if err == nil {
						r.t.Fatalf("%s accepts a client of authority %d", p.addr, i)
					}
					return isRefused(err)
				})
			}
		}
		conn := r.kept(m)
		_, err := pb.NewKVClient(conn).Put(r.tr.members[0].ctx(), &pb.PutRequest{Key: []byte("newest")})
		wantOK(r.t, err)
	}
}

// run repeats a call, with a pause that leaves processors to the members.
func (r *rotated) run(name string, call func(n int64) error) {
	c := &loadClient{name: name}
	r.clients = append(r.clients, c)
	r.running.Go(func() {
		for !r.ended.Load() {
			if err := call(c.calls.Load()); err != nil {
				r.fail("%s: call %d: %w", name, c.calls.Load(), err)
				return
			}
			c.calls.Add(1)
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// settle waits until each client has begun and ended a call.
func (r *rotated) settle() {
	r.t.Helper()
	for _, c := range r.clients {
		from := c.calls.Load()
		eventually(r.t, "the client "+c.name+" goes on", func() bool { return r.failure() != nil || c.calls.Load() >= from+2 })
	}
}

// connect returns a new connection for gRPC.
func (r *rotated) connect(m *rotatedMember) (*grpc.ClientConn, error) {
	return grpc.NewClient(m.server.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(r.shown.Load())))
}

// kept returns a connection for gRPC that is kept until the test ends.
func (r *rotated) kept(m *rotatedMember) *grpc.ClientConn {
	r.t.Helper()
	conn, err := r.connect(m)
	wantOK(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// post sends JSON to a member.
func post(client *http.Client, m *rotatedMember, path, body string, answer any) error {
	resp, err := client.Post("https://"+m.server.Addr()+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return errors.Join(err, json.Unmarshal(text, answer))
}

// load starts clients that renew, claim, put and watch: each kind over connections that stay open, and over new ones.
func (r *rotated) load() {
	t, ctx := r.t, r.tr.members[0].ctx()
	follower, other := r.members[0], r.members[1]
	long, long2 := r.kept(follower), r.kept(other)
	renewals, err := pb.NewLeaseClient(long).LeaseKeepAlive(ctx)
	wantOK(t, err)
	r.run("renewals on a stream", func(int64) error {
		if err := renewals.Send(&pb.LeaseKeepAliveRequest{ID: 1}); err != nil {
			return err
		}
		resp, err := renewals.Recv()
		if err == nil && resp.TTL != 600 {
			err = fmt.Errorf("the lease is lost: TTL %d", resp.TTL)
		}
		return err
	})
	names := leasekeeperv1.NewLeasekeeperClient(long2)
	bulk, err := names.Renew(ctx)
	wantOK(t, err)
	r.run("renewals of a name on a stream", func(n int64) error {
		if err := bulk.Send(&leasekeeperv1.RenewRequest{Number: uint64(n + 1), Leases: []int64{2}}); err != nil {
			return err
		}
		resp, err := bulk.Recv()
		if err == nil && len(resp.Refused) > 0 {
			err = fmt.Errorf("the lease is lost: %v", resp.Refused)
		}
		return err
	})
	r.watchPuts(ctx, pb.NewWatchClient(long2))
	for i, m := range r.members {
		r.run(fmt.Sprint("claims over new connections to ", i), func(n int64) error { return r.claim(ctx, m, i, n) })
		r.run(fmt.Sprint("JSON over new connections to ", i), func(n int64) error { return r.json(m, i, n) })
	}
	r.run("puts over an open connection", func(n int64) error {
		_, err := pb.NewKVClient(long).Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, "w/open/", n)})
		r.puts.Add(1)
		return err
	})
}

// watchPuts counts the puts that a watcher sees, until it has seen all.
func (r *rotated) watchPuts(ctx context.Context, watches pb.WatchClient) {
	stream, err := watches.Watch(ctx)
	wantOK(r.t, err)
	wantOK(r.t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("w/"), RangeEnd: []byte("w0")}}}))
	_, err = stream.Recv()
	wantOK(r.t, err)
	r.running.Go(func() {
		for seen := int64(0); !r.ended.Load() || seen < r.puts.Load(); {
			resp, err := stream.Recv()
			if err != nil {
				r.fail("the watcher has seen %d of %d puts: %w", seen, r.puts.Load(), err)
				return
			}
			seen += int64(len(resp.Events))
		}
	})
}

// claim takes and releases a name, and writes a key, over a connection of its own.
func (r *rotated) claim(ctx context.Context, m *rotatedMember, i int, n int64) error {
	conn, err := r.connect(m)
	if err != nil {
		return err
	}
	defer conn.Close()
	names := leasekeeperv1.NewLeasekeeperClient(conn)
	name, lease := fmt.Sprint("busy/", i), int64(1_000_000*(i+1))+n
	stream, err := names.Acquire(ctx, &leasekeeperv1.AcquireRequest{Name: name, Lease: lease, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "h"}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil {
		_, err = names.Release(ctx, &leasekeeperv1.ReleaseRequest{Name: name, Lease: lease})
	}
	if err == nil {
		_, err = pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, "w/", i, "/", n)})
		r.puts.Add(1)
	}
	return err
}

// json renews a lease and writes a key, as JSON over a connection of its own.
func (r *rotated) json(m *rotatedMember, i int, n int64) error {
	transport := &http.Transport{TLSClientConfig: r.shown.Load().Clone()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var renewed struct{ Result struct{ TTL string } }
	if err := post(client, m, "/v3/lease/keepalive", `{"ID":"1"}`, &renewed); err != nil || renewed.Result.TTL != "600" {
		return errors.Join(err, fmt.Errorf("the TTL is %q", renewed.Result.TTL))
	}
	key, err := json.Marshal(fmt.Append(nil, "w/json/", i, "/", n))
	if err != nil {
		return err
	}
	err = post(client, m, "/v3/kv/put", fmt.Sprintf(`{"key":%s}`, key), &struct{}{})
	r.puts.Add(1)
	return err
}

// rotate replaces an authority and all its certificates, by the steps of docs/operations.md.
func (r *rotated) rotate(before, after *authority.Authority) {
	r.t.Helper()
	for _, m := range r.members {
		m.trust(r.t, m.cfg, before, after)
	}
	r.show(before, bundle(before, after))
	fresh := after.Trust(after.Pair("client"))
	fresh.RootCAs = r.shown.Load().RootCAs
	r.everyPort("a certificate of the new authority is accepted", fresh, func(_ *x509.Certificate, err error) bool { return err == nil })
	r.settle()

	for _, m := range r.members {
		m.replace(r.t, after, m.cfg)
	}
	r.show(after, bundle(before, after))
	pair := after.Pair("issuer of it")
	r.everyPort("the member shows its new certificate", r.shown.Load(), func(leaf *x509.Certificate, err error) bool {
		return err == nil && bytes.Equal(leaf.AuthorityKeyId, pair.Leaf.AuthorityKeyId)
	})
	r.settle()

	for _, m := range r.members {
		m.trust(r.t, m.cfg, after)
	}
	r.show(after, bundle(after))
	stale := before.Pair("client")
	r.everyPort("a certificate of the old authority is refused", after.Trust(stale), func(_ *x509.Certificate, err error) bool {
		return isRefused(err)
	})
	r.settle()
}

// All certificates and authorities of a cluster are replaced twice, under load. No call fails, no lease is lost, and the leader
// stays. In the end each port has the newest certificate, and takes no client of an earlier authority.
func TestCertificatesAreRotatedTwiceUnderLoad(t *testing.T) {
	const attempts = 3
	for range attempts {
		concluded := false
		t.Run("attempt", func(t *testing.T) { concluded = rotateTwice(t) })
		if concluded || t.Failed() {
			return
		}
	}
	t.Fatalf("in each of %d attempts the machine kept this process from running for more than %v", attempts, stallLimit)
}

func rotateTwice(t *testing.T) (concluded bool) {
	authorities := []*authority.Authority{authority.New(t, "first"), authority.New(t, "second"), authority.New(t, "third")}
	r := startRotated(t, authorities[0])
	leader, _ := r.tr.leader()
	term := leader.node.Header().Term
	ctx := leader.ctx()
	first := r.kept(r.members[0])
	_, err := pb.NewLeaseClient(first).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 1, TTL: 600})
	wantOK(t, err)
	names := leasekeeperv1.NewLeasekeeperClient(first)
	stream, err := names.Acquire(ctx, &leasekeeperv1.AcquireRequest{Name: "kept", Lease: 2, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "h"}})
	wantOK(t, err)
	held, err := stream.Recv()
	wantOK(t, err)

	r.watchStalls()
	r.load()
	r.settle()
	r.rotate(authorities[0], authorities[1])
	r.rotate(authorities[1], authorities[2])
	for _, m := range r.members {
		m.replace(t, authorities[2], m.cfg) // the usual case: the authority stays
	}
	r.settle()
	r.ended.Store(true)
	_, err = pb.NewKVClient(first).Put(ctx, &pb.PutRequest{Key: []byte("w/last")}) // the watcher looks whether it has seen all
	wantOK(t, err)
	r.running.Wait()
	if now := leader.node.Header().Term; now != term {
		r.fail("the term is %d, and was %d: the leader has changed", now, term)
	}
	if !r.conclude() {
		return false
	}
	r.mustHaveOnly(authorities[2], authorities[:2]...)
	got, err := names.Get(ctx, &leasekeeperv1.GetRequest{Name: "kept"})
	wantOK(t, err)
	wantEqual(t, "token of the name that was held throughout", got.Info.GetToken(), held.Token)
	for _, c := range r.clients {
		t.Logf("%s: %d calls", c.name, c.calls.Load())
	}
	return true
}
