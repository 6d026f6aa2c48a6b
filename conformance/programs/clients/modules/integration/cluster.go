package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

const (
	// RequestWaitTimeout is how long the suites wait for a request to end.
	RequestWaitTimeout = 5 * time.Second

	// dialLimit bounds the time in which a client connects.
	dialLimit = 5 * time.Second

	// tick is the unit of Member.ElectionTicks.
	tick = 10 * time.Millisecond

	// electionTimeout is the one of both servers by default.
	electionTimeout = time.Second

	// leaderLimit bounds the wait for a leader.
	leaderLimit = 30 * time.Second

	// faultyMembers is the size of each cluster whose leader is killed.
	faultyMembers = 3
)

// ClusterConfig has those settings that the suites change.
type ClusterConfig struct {
	Size                        int
	UseBridge                   bool // clients reach each member through a bridge
	MaxRequestBytes             uint // 0 for the server's default
	ClientMaxCallRecvMsgSize    int  // 0 for the client's default
	WatchProgressNotifyInterval time.Duration

	// No effect: only a test that is excluded sets these.
	SnapshotCount, SnapshotCatchUpEntries uint64
}

// Cluster is a cluster of members, each with a client.
type Cluster struct {
	Members []*Member

	cfg     ClusterConfig
	members *cluster.Cluster
	faults  *faults // nil: nobody kills a leader
}

// NewCluster starts a cluster and returns when it serves. It ends with Terminate, or with the test.
func NewCluster(tb testutil.TB, cfg *ClusterConfig) *Cluster {
	t := full(tb)
	t.Helper()
	c := &Cluster{cfg: *cfg}
	if faultsFile() != "" {
		c.cfg.Size = faultyMembers
		if cfg.UseBridge {
			t.Fatal("the leader of a cluster with bridges is not killed")
		}
	}
	program := os.Getenv("SUITE_PROGRAM")
	c.members = cluster.StartProgram(t, c.kind(), program, c.cfg.Size, c.flags()...)
	for _, m := range c.members.Members() {
		c.Members = append(c.Members, &Member{cluster: c, member: m, ElectionTicks: int(electionTimeout / tick)})
	}
	for _, m := range c.Members {
		m.connect(t)
	}
	if file := faultsFile(); file != "" {
		c.faults = startFaults(t, c.members, file)
	}
	return c
}

func (c *Cluster) flags() []string {
	interval := c.cfg.WatchProgressNotifyInterval
	if interval == 0 {
		interval = v3rpc.GetProgressReportInterval() // some tests change it
	}
	flags := []string{"--watch-progress-notify-interval", interval.String()}
	if c.cfg.MaxRequestBytes > 0 {
		flags = append(flags, "--max-request-bytes", strconv.FormatUint(uint64(c.cfg.MaxRequestBytes), 10))
	}
	return flags
}

// Terminate closes the clients that nobody has taken, and ends the members.
func (c *Cluster) Terminate(testutil.TB) {
	for _, m := range c.Members {
		if m.Client != nil {
			m.Client.Close()
		}
	}
	if c.faults != nil {
		c.faults.stop()
	}
	for _, m := range c.Members {
		m.disconnect()
	}
	c.members.End()
}

// Client returns the client of a member.
func (c *Cluster) Client(i int) *clientv3.Client { return c.Members[i].Client }

// RandClient returns the client of any member.
func (c *Cluster) RandClient() *clientv3.Client { return c.Client(rand.IntN(len(c.Members))) }

// TakeClient leaves it to the caller to close the client of a member.
func (c *Cluster) TakeClient(i int) { c.Members[i].Client = nil }

// Endpoints returns the addresses of all members.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.address())
	}
	return all
}

// WaitLeader waits until all members that run follow one leader, and returns its index.
func (c *Cluster) WaitLeader(tb testing.TB) int { return c.WaitMembersForLeader(tb, c.Members) }

// WaitMembersForLeader waits until all of these members that run follow one of them, and returns its index.
func (c *Cluster) WaitMembersForLeader(tb testing.TB, members []*Member) int {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(leaderLimit); time.Now().Before(deadline); time.Sleep(tick) {
		var leader int
		if leader, err = leaderOf(members); err == nil {
			return leader
		}
	}
	tb.Fatalf("the members follow no leader within %v: %v", leaderLimit, err)
	return 0
}

// leaderOf returns the index of the member that leads.
func leaderOf(members []*Member) (int, error) {
	leader, followed := -1, uint64(0)
	for i, m := range members {
		if m.stopped {
			continue
		}
		status, err := m.status()
		if err != nil {
			return 0, err
		}
		if status.Leader == 0 || followed != 0 && status.Leader != followed {
			return 0, fmt.Errorf("member %d follows %x, another one %x", i, status.Leader, followed)
		}
		followed = status.Leader
		if status.Header.MemberId == status.Leader {
			leader = i
		}
	}
	if leader < 0 {
		return 0, fmt.Errorf("the leader %x is none of these members, or does not run", followed)
	}
	return leader, nil
}

// MakeSingleNodeClients returns a function that makes clients of the first member and appends them to a list.
func MakeSingleNodeClients(t testutil.TB, c *Cluster, clients *[]*clientv3.Client) func() *clientv3.Client {
	return makeClients(t, c, clients, func() int { return 0 })
}

// MakeMultiNodeClients returns a function that makes clients of random members and appends them to a list.
func MakeMultiNodeClients(t testutil.TB, c *Cluster, clients *[]*clientv3.Client) func() *clientv3.Client {
	return makeClients(t, c, clients, func() int { return rand.IntN(len(c.Members)) })
}

// makeClients returns a function that is safe for concurrent use.
func makeClients(t testutil.TB, c *Cluster, clients *[]*clientv3.Client, choose func() int) func() *clientv3.Client {
	var mu sync.Mutex
	return func() *clientv3.Client {
		mu.Lock()
		defer mu.Unlock()
		client, err := c.Members[choose()].newClient()
		if err != nil {
			t.Fatalf("making a client: %v", err)
		}
		*clients = append(*clients, client)
		return client
	}
}

// CloseClients closes clients.
func CloseClients(t testutil.TB, clients []*clientv3.Client) {
	for _, client := range clients {
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// WaitClientV3 waits until the member of a client answers reads.
func WaitClientV3(t testutil.TB, kv clientv3.KV) {
	var err error
	for deadline := time.Now().Add(leaderLimit); time.Now().Before(deadline); time.Sleep(tick) {
		ctx, cancel := context.WithTimeout(context.Background(), RequestWaitTimeout)
		_, err = kv.Get(ctx, "/")
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("the client has no answer within %v: %v", leaderLimit, err)
}

// GRPCAPI has the services without the client around them.
type GRPCAPI struct {
	Cluster     pb.ClusterClient
	KV          pb.KVClient
	Lease       pb.LeaseClient
	Watch       pb.WatchClient
	Maintenance pb.MaintenanceClient
	Auth        pb.AuthClient
}

// ToGRPC returns the services on the connection of a client.
func ToGRPC(client *clientv3.Client) GRPCAPI {
	conn := client.ActiveConnection()
	return GRPCAPI{
		Cluster: pb.NewClusterClient(conn), KV: pb.NewKVClient(conn), Lease: pb.NewLeaseClient(conn),
		Watch: pb.NewWatchClient(conn), Maintenance: pb.NewMaintenanceClient(conn), Auth: pb.NewAuthClient(conn),
	}
}

func (c *Cluster) kind() cluster.Kind { return cluster.Kind(os.Getenv("SUITE_KIND")) }
