package rightsmatrix

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
	"github.com/leasekeeper/leasekeeper/server"
)

// waitLimit bounds every wait for an event that should happen at once.
const waitLimit = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a cluster of three members in this process, over TCP.
type cluster struct {
	t       testing.TB
	ca      *authority.Authority // of clients and members; nil without TLS
	members []*member
}

// member is a member of a cluster, with its server.
type member struct {
	id     uint64
	node   *node.Node
	server *server.Server
	socket *peer.Socket
}

// startCluster starts a cluster with simple tokens and no TLS, or with JSON Web Tokens and certificates everywhere.
func startCluster(t testing.TB, certificates bool) *cluster {
	t.Helper()
	c := &cluster{t: t}
	if certificates {
		c.ca = authority.New(t, "ca")
	}
	addresses, listeners := make(map[uint64]string), make([]net.Listener, 3)
	var founders []roster.Member
	ids := []uint64{11, 12, 13}
	for i, id := range ids {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		wantOK(t, err)
		addresses[id], listeners[i] = l.Addr().String(), l
		founders = append(founders, roster.Member{ID: id, Name: string(rune('a' + i)), PeerURLs: []string{c.scheme() + "://" + l.Addr().String()}})
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	wantOK(t, os.WriteFile(secret, []byte("32 bytes that only members have.."), 0o600))
	for i, id := range ids {
		cfg := server.Config{
			ListenClient: "127.0.0.1:0", ListenHTTP: "127.0.0.1:0", BcryptCost: 4, Logins: server.NewLogins(server.DefaultAuthTokenTTL), Name: founders[i].Name,
		}
		var files peer.CertificateFiles
		if certificates {
			cfg.AuthToken = "jwt,sign-method=HS256,ttl=10m,priv-key=" + secret
			cfg.CertFile, cfg.KeyFile, cfg.ClientCAFile = c.certify(dir, fmt.Sprint("member", id))
			files = peer.CertificateFiles{Cert: cfg.CertFile, Key: cfg.KeyFile, CA: cfg.ClientCAFile}
		}
		c.members = append(c.members, c.startMember(id, cfg, peer.Config{
			Self: id, ClusterID: 77, Members: addresses, Listener: listeners[i], Files: files,
		}, founders))
	}
	for _, m := range c.members {
		eventually(t, "the members are ready", func() bool { return m.node.CheckReady() == nil })
	}
	return c
}

// certify writes a certificate, its key and the authority's certificate into a directory.
func (c *cluster) certify(dir, name string) (certFile, keyFile, caFile string) {
	c.t.Helper()
	cert, key := c.ca.Issue(name)
	certFile, keyFile, caFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), filepath.Join(dir, "ca.pem")
	for file, text := range map[string][]byte{certFile: cert, keyFile: key, caFile: c.ca.PEM()} {
		wantOK(c.t, os.WriteFile(file, text, 0o600))
	}
	return certFile, keyFile, caFile
}

func (c *cluster) startMember(id uint64, cfg server.Config, transport peer.Config, founders []roster.Member) *member {
	c.t.Helper()
	m := &member{id: id, socket: new(peer.Socket)}
	var err error
	m.node, err = node.Start(c.t.Context(), node.Config{Dir: c.t.TempDir(), LoggedIn: cfg.Logins.Learn, Cluster: &node.ClusterConfig{
		Self: id, Members: []uint64{11, 12, 13}, Founders: founders, ClusterID: 77, Transport: m.socket, ReadTimeout: waitLimit,
	}})
	wantOK(c.t, err)
	transport.Incarnation, transport.Receive, transport.ReceiveState = m.node.Incarnation(), m.node.Receive, m.node.ReceiveState
	transport.Unreachable = m.node.Unreachable
	peers, err := peer.New(transport)
	wantOK(c.t, err)
	m.socket.Connect(peers)
	cfg.Cluster = &server.Cluster{Peers: peers, ReadTimeout: waitLimit}
	m.server, err = server.New(cfg, m.node)
	wantOK(c.t, err)
	wantOK(c.t, peers.Start())
	wantOK(c.t, m.server.Start())
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if leader, _ := m.node.Leader(); leader == id {
			_ = m.node.HandOver(ctx, 0) // so that the others stop quickly; the last one has nobody to hand over to
		}
		for what, err := range map[string]error{"server": m.server.Stop(ctx), "node": m.node.Stop(ctx), "transport": peers.Close(ctx)} {
			if err != nil {
				c.t.Errorf("stopping the %s: %v", what, err)
			}
		}
	})
	return m
}

func (c *cluster) scheme() string {
	if c.ca != nil {
		return "https"
	}
	return "http"
}

// through returns the leader and a follower.
func (c *cluster) through() map[string]*member {
	c.t.Helper()
	found := make(map[string]*member)
	eventually(c.t, "a member leads", func() bool {
		clear(found)
		for _, m := range c.members {
			if leader, _ := m.node.Leader(); leader == m.id {
				found["leader"] = m
			} else if leader != 0 {
				found["follower"] = m
			}
		}
		return len(found) == 2
	})
	return found
}

// tls returns the configuration of a client with a certificate for a common name; nil without TLS.
func (c *cluster) tls(name string) *tls.Config {
	c.t.Helper()
	if c.ca == nil {
		return nil
	}
	return c.ca.Trust(c.ca.Pair(name))
}

// client is a client of a member, over gRPC and HTTP.
type client struct {
	member *member
	conn   *grpc.ClientConn
	http   *http.Client
	scheme string
}

// dial connects to a member with the certificate of a common name, if the cluster has TLS.
func (c *cluster) dial(m *member, name string) *client {
	c.t.Helper()
	config := c.tls(name)
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(m.server.Addr(), grpc.WithTransportCredentials(creds))
	wantOK(c.t, err)
	transport := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 16}
	c.t.Cleanup(func() {
		conn.Close()
		transport.CloseIdleConnections()
	})
	return &client{m, conn, &http.Client{Transport: transport}, c.scheme()}
}

func wantOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", waitLimit, what)
		}
	}
}
