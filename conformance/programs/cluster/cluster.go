package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
)

const (
	// waitLimit bounds each wait for something that is due within seconds. The machine may be busy.
	waitLimit = time.Minute

	// callLimit bounds one attempt of a request.
	callLimit = 5 * time.Second
)

// Cluster is a number of members of one kind that replicate each other.
type Cluster struct {
	t       testing.TB
	kind    Kind
	program string   // the path of the server
	flags   []string // of each member, in addition to those that each has
	secrets *Secrets // nil for a cluster without TLS and users
	members []*Member
}

// Start starts a cluster of n members on empty data directories and returns once the members agree on a leader. Each
// member's server receives the flags, in addition to those that a cluster needs. The members end with the test.
func Start(t testing.TB, kind Kind, n int, flags ...string) *Cluster {
	t.Helper()
	return StartProgram(t, kind, Program(t, kind), n, flags...)
}

// StartProgram is like [Start], but the servers are the program at a path, and nothing is built.
func StartProgram(t testing.TB, kind Kind, program string, n int, flags ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, kind: kind, program: program, flags: flags}
	c.begin(n)
	return c
}

// begin starts the members, at the second or third attempt if need be.
func (c *Cluster) begin(n int) {
	t := c.t
	t.Helper()
	t.TempDir() // its cleanup removes all directories of the test, and has to run after the end of the members
	t.Cleanup(c.End)
	// Another process may take a port between its choice and its use.
	for attempt := 1; ; attempt++ {
		err := c.start(n)
		if err == nil {
			return
		}
		if attempt == 3 {
			t.Fatalf("starting a cluster of %s: %v", c.kind, err)
		}
		c.killAll()
	}
}

// start makes the members and starts them.
func (c *Cluster) start(n int) error {
	dir := c.t.TempDir()
	c.members = nil
	for i := range n {
		c.members = append(c.members, newMember(c, string(rune('a'+i)), dir))
	}
	for _, m := range c.members {
		if err := m.run(); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.awaitReady(); err != nil {
			return err
		}
	}
	_, err := c.agreed()
	return err
}

func (c *Cluster) killAll() {
	for _, m := range c.members {
		m.kill()
	}
}

// End kills all members. It may be called before the end of the test, and more than once.
func (c *Cluster) End() {
	ended := !slices.ContainsFunc(c.members, (*Member).running)
	c.killAll()
	if !ended && c.t.Failed() {
		for _, m := range c.members {
			process.ShowLog(c.t, fmt.Sprintf("member %s of %s", m.name, c.kind), m.log)
		}
	}
}

// Members returns the members. Their order, names and addresses stay.
func (c *Cluster) Members() []*Member { return slices.Clone(c.members) }

// Endpoints returns the addresses of all members for clients, each as host:port. A member that does not run is among them.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.client)
	}
	return all
}

// list returns the members in the form of the flag --initial-cluster.
func (c *Cluster) list(scheme string) string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.name+"="+scheme+m.peer)
	}
	return strings.Join(all, ",")
}

// Leader waits until all members that run agree on a leader, and returns it.
func (c *Cluster) Leader() *Member {
	c.t.Helper()
	leader, err := c.agreed()
	if err != nil {
		c.t.Fatal(err)
	}
	return leader
}

// KillLeader kills the leader and returns it. It does not wait for the next one.
func (c *Cluster) KillLeader() *Member {
	c.t.Helper()
	leader := c.Leader()
	leader.kill()
	return leader
}

// Kill kills a member.
func (c *Cluster) Kill(m *Member) { m.kill() }

// Run starts a member that does not run on its data directory. It does not wait until the member is ready.
func (c *Cluster) Run(m *Member) {
	c.t.Helper()
	if err := m.run(); err != nil {
		c.t.Fatalf("starting member %s again: %v", m.name, err)
	}
}

// Restart kills a member if it runs, starts it on its data directory, and waits until it is ready.
func (c *Cluster) Restart(m *Member) {
	c.t.Helper()
	m.kill()
	if err := m.run(); err != nil {
		c.t.Fatalf("starting member %s again: %v", m.name, err)
	}
	if err := m.awaitReady(); err != nil {
		c.t.Fatal(err)
	}
}

// ReplaceMember replaces a member as an operator does whose machine has lost its disk: it kills the member, removes it from
// the cluster, empties its data directory, adds a member with the same addresses, starts that, and waits until it is ready
// and follows the leader.
func (c *Cluster) ReplaceMember(m *Member) {
	c.t.Helper()
	id := c.idOf(m)
	m.kill()
	c.change("removing member "+m.name, func(ctx context.Context, at pb.ClusterClient) error {
		_, err := at.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
		if err != nil && strings.Contains(err.Error(), "member not found") {
			return nil // an earlier attempt has removed it
		}
		return err
	})
	if err := os.RemoveAll(m.dir); err != nil {
		c.t.Fatal(err)
	}
	c.change("adding member "+m.name, func(ctx context.Context, at pb.ClusterClient) error {
		_, err := at.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{m.peerURL()}})
		if err != nil && strings.Contains(err.Error(), "Peer URLs already exists") {
			return nil // an earlier attempt has added it
		}
		return err
	})
	m.joins = true
	c.Restart(m)
	c.Leader()
}

func (m *Member) peerURL() string { return "http://" + m.peer }

// idOf returns the id under which the cluster lists a member.
func (c *Cluster) idOf(m *Member) (id uint64) {
	c.t.Helper()
	c.change("listing the members", func(ctx context.Context, at pb.ClusterClient) error {
		list, err := at.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		for _, listed := range list.GetMembers() {
			if slices.Contains(listed.PeerURLs, m.peerURL()) {
				id = listed.ID
			}
		}
		return err
	})
	if id == 0 {
		c.t.Fatalf("no member is listed with the URL %s", m.peerURL())
	}
	return id
}

// change tries a request at one running member after the other, until one of them carries it out. A cluster without a
// leader, or with a member that has just started, refuses changes of members for a moment.
func (c *Cluster) change(what string, try func(ctx context.Context, at pb.ClusterClient) error) {
	c.t.Helper()
	last := errors.New("no member runs")
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, m := range c.members {
			if !m.running() {
				continue
			}
			last = m.call(func(ctx context.Context, conn *grpc.ClientConn) error {
				return try(ctx, pb.NewClusterClient(conn))
			})
			if last == nil {
				return
			}
		}
	}
	c.t.Fatalf("%s: not done within %v: %v", what, waitLimit, last)
}

// call makes one request to the member, over a connection of its own.
func (m *Member) call(request func(ctx context.Context, conn *grpc.ClientConn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+m.client, grpc.WithTransportCredentials(m.cluster.Credentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return request(ctx, conn)
}

// Credentials are those of a client that may do everything.
func (c *Cluster) Credentials() credentials.TransportCredentials {
	if c.secrets == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(c.secrets.root)
}

// agreed waits until all running members follow one leader.
func (c *Cluster) agreed() (*Member, error) {
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Millisecond) {
		leader, err := c.look()
		if err == nil {
			return leader, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the members agree on no leader within %v: %w", waitLimit, err)
		}
	}
}

// look asks each running member once for its leader.
func (c *Cluster) look() (leader *Member, err error) {
	var first *pb.StatusResponse
	for _, m := range c.members {
		if !m.running() {
			continue
		}
		var status *pb.StatusResponse
		err := m.call(func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			status, err = pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("status of member %s: %w", m.name, err)
		}
		if first == nil {
			first = status
		}
		if status.Leader == 0 || status.Leader != first.Leader || status.RaftTerm != first.RaftTerm {
			return nil, fmt.Errorf("member %s follows %x in term %d, and another one %x in term %d", m.name, status.Leader, status.RaftTerm, first.Leader, first.RaftTerm)
		}
		if status.Leader == status.Header.MemberId {
			leader = m
		}
	}
	if leader == nil {
		return nil, errors.New("the leader does not run")
	}
	return leader, nil
}
