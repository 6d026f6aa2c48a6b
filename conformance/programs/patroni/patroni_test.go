package patroni

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/steps"
)

// all selects the tests that .ci/run leaves out, because each keeps two databases and a cluster busy for two minutes.
var all = flag.Bool("all", false, "run the tests with TLS and users, and of the move from etcd, too")

var leaderKills = flag.Int("leaderkills", 3, "how often the cluster's leader is killed under a healthy primary")

// waitLimit bounds each wait. A failover waits for the end of a lease of 20 seconds.
const waitLimit = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// A primary outlives the leaders and the members of the cluster. A switchover loses no acknowledged row, and the other node
// takes over from a primary that was killed. The outcome on etcd is the same.
func TestPatroniFailsOverOnlyWhenThePrimaryFails(t *testing.T) {
	cluster.Need(t, "patroni", patroniProgram, patronictlProgram, postgresFolder()+"/initdb")
	var mu sync.Mutex
	outcome := make(map[cluster.Kind]string)
	t.Cleanup(func() { // after the parallel tests
		ours, theirs := outcome[cluster.Leasekeeper], outcome[cluster.Etcd]
		if len(outcome) == 2 && ours != theirs {
			t.Errorf("on Leasekeeper:\n%s\non etcd:\n%s", ours, theirs)
		}
	})
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := startScenario(t, cluster.Start(t, kind, 3), nil)
			s.play()
			mu.Lock()
			defer mu.Unlock()
			outcome[kind] = strings.Join(s.outcome, "\n")
		})
	}
}

// The same holds over TLS, with a certificate that each client must show, and with a user that may only write Patroni's keys. It
// is not compared: Patroni 3.0 asks for the members before it logs in, and sends JSON, for which etcd 3.7 takes no user from a
// certificate. So etcd refuses it.
func TestPatroniWithTLSAndUsersFailsOverOnlyWhenThePrimaryFails(t *testing.T) {
	needAll(t)
	t.Parallel()
	cluster.Need(t, "patroni", patroniProgram, patronictlProgram, postgresFolder()+"/initdb")
	c, secrets := cluster.StartSecured(t, cluster.Leasekeeper, 3, "/service/")
	startScenario(t, c, secrets).play()
}

func needAll(t *testing.T) {
	t.Helper()
	if !*all {
		t.Skip("go test ./patroni -all runs this test: see CONTRIBUTING.md")
	}
}

// scenario is one run with two nodes.
type scenario struct {
	t       *testing.T
	cluster *cluster.Cluster
	nodes   []*node
	writer  *writer
	outcome []string // what happened, in words that are the same in each run
}

// startScenario starts two nodes on a cluster, and returns once the standby streams and the writer writes.
func startScenario(t *testing.T, c *cluster.Cluster, secrets *cluster.Secrets) *scenario {
	t.Helper()
	s := &scenario{t: t, cluster: c}
	dir := newDirectory(t)
	for _, name := range []string{"one", "two"} {
		n := newNode(t, dir, name, s.cluster.Endpoints(), secrets)
		s.nodes = append(s.nodes, n)
		t.Cleanup(func() {
			n.kill()
			if t.Failed() {
				n.showLog()
			}
		})
	}
	s.nodes[0].start()
	s.eventually("node one leads", func() error { return isPrimary(s.nodes[0], 1) })
	s.nodes[1].start()
	s.eventually("node two streams", func() error { return hasStandby(s.nodes[0]) })
	s.writer = startWriter(t.Context(), s.nodes, nil)
	t.Cleanup(func() { s.writer.end() })
	s.progress()
	return s
}

// play goes through all faults.
func (s *scenario) play() {
	s.t.Helper()
	s.killLeaders()
	s.replaceMembers()
	s.switchOver()
	s.failOver()
}

// killLeaders kills the leader of the cluster again and again. The primary serves on.
func (s *scenario) killLeaders() {
	s.t.Helper()
	s.undisturbed("leaders were killed", func() {
		for range *leaderKills {
			killed := s.cluster.KillLeader()
			s.cluster.Leader()
			s.progress()
			s.cluster.Restart(killed)
			s.progress()
		}
	})
}

// replaceMembers replaces each member, the leader first. The primary serves on.
func (s *scenario) replaceMembers() {
	s.t.Helper()
	s.undisturbed("members were replaced", func() {
		leader := s.cluster.Leader()
		s.cluster.ReplaceMember(leader)
		s.progress()
		for _, m := range s.cluster.Members() {
			if m != leader {
				s.cluster.ReplaceMember(m)
				s.progress()
			}
		}
	})
}

// undisturbed runs faults of the cluster, and checks that no session of the primary notices.
func (s *scenario) undisturbed(what string, faults func()) {
	s.t.Helper()
	w, err := startWitness(s.t.Context(), s.nodes[0])
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.stop()
	var offsets []int64
	for _, n := range s.nodes {
		offsets = append(offsets, n.logSize())
	}
	before, _ := s.writer.count()
	began := time.Now()
	faults()
	samples, changes := w.end()
	after, failures := s.writer.count()
	for i, n := range s.nodes {
		if lines := n.logged(offsets[i], "demot"); len(lines) > 0 {
			s.t.Errorf("%s: %s demotes: %s", what, n.name, lines)
		}
	}
	if len(changes) > 0 || len(failures) > 0 {
		s.t.Fatalf("%s: changes of the primary %s; failed writes %s", what, changes, failures)
	}
	s.t.Logf("%s in %v: %d observations of the primary, %d rows", what, time.Since(began).Round(time.Second), samples, after-before)
	s.outcome = append(s.outcome, what+": the primary served on")
}

// switchOver orders a switchover to node two.
func (s *scenario) switchOver() {
	s.t.Helper()
	out := s.shell(steps.Read(s.t, patroniPage, "Patroni").Block("patronictl "))
	if !strings.Contains(out, `Successfully switched over to "two"`) {
		s.t.Fatalf("patronictl switchover: %s", out)
	}
	s.eventually("node two leads", func() error { return isPrimary(s.nodes[1], 2) })
	s.eventually("node one follows", func() error { return hasStandby(s.nodes[1]) })
	s.progress()
	rows := s.writer.end()
	lost, err := missing(s.nodes[1], rows)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(lost) > 0 {
		s.t.Fatalf("the switchover lost %d of %d acknowledged rows: %v", len(lost), len(rows), lost)
	}
	s.t.Logf("the switchover kept all of %d acknowledged rows", len(rows))
	s.outcome = append(s.outcome, "switchover: two leads on timeline 2, one follows, no acknowledged row is lost")
	s.writer = startWriter(s.t.Context(), s.nodes, rows)
}

// failOver kills the primary's node. The other one takes over, and the killed one returns as its standby.
func (s *scenario) failOver() {
	s.t.Helper()
	began := time.Now()
	s.nodes[1].kill()
	s.eventually("node one leads again", func() error { return isPrimary(s.nodes[0], 3) })
	took := time.Since(began)
	s.nodes[1].start()
	s.eventually("node two follows", func() error { return hasStandby(s.nodes[0]) })
	s.progress()
	s.t.Logf("node one took over within %v", took.Round(time.Second))
	s.outcome = append(s.outcome, "failover: one leads on timeline 3, two follows")
}

// isPrimary checks that a node is the primary, on a timeline.
func isPrimary(n *node, timeline int) error {
	const statement = "SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
	got, err := query[string](n, statement)
	if want := fmt.Sprintf("%08X", timeline); err == nil && got != want {
		return fmt.Errorf("node %s is on timeline %q, want %q", n.name, got, want)
	}
	return err
}

// hasStandby checks that the other node streams from the primary.
func hasStandby(primary *node) error {
	got, err := query[int](primary, "SELECT count(*)::int FROM pg_stat_replication WHERE state = 'streaming'")
	if err == nil && got != 1 {
		return fmt.Errorf("%d nodes stream from %s", got, primary.name)
	}
	return err
}

// missing returns those of the rows that a node does not have.
func missing(n *node, rows []int64) ([]int64, error) {
	there, err := query[[]int64](n, "SELECT array_agg(row) FROM acknowledged")
	if err != nil {
		return nil, err
	}
	has := make(map[int64]bool)
	for _, row := range there {
		has[row] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(row int64) bool { return has[row] }), nil
}

// progress waits until both Patronis have written to the cluster twice more. While a client writes to PostgreSQL, each does
// so in every round of its loop.
func (s *scenario) progress() {
	s.t.Helper()
	for range 2 {
		before, err := s.revisions()
		if err != nil {
			before = map[string]int64{}
		}
		s.eventually("both nodes write to the cluster", func() error {
			now, err := s.revisions()
			if err != nil {
				return err
			}
			for key, revision := range now {
				if revision <= before[key] {
					return fmt.Errorf("%s is at revision %d still", key, revision)
				}
			}
			return nil
		})
	}
}

// revisions returns the revisions of the keys that Patroni writes all the time.
func (s *scenario) revisions() (map[string]int64, error) {
	const prefix = "/service/" + scope + "/"
	now := map[string]int64{prefix + "status": 0, prefix + "members/one": 0, prefix + "members/two": 0}
	for key := range now {
		revision, err := s.revision(key)
		if err != nil {
			return nil, err
		}
		now[key] = revision
	}
	return now, nil
}

// revision reads the revision of a key at the first member that answers.
func (s *scenario) revision(key string) (int64, error) {
	last := fmt.Errorf("no member")
	for _, endpoint := range s.cluster.Endpoints() {
		resp, err := s.read(endpoint, key)
		if err == nil && len(resp.Kvs) == 1 {
			return resp.Kvs[0].ModRevision, nil
		}
		last = fmt.Errorf("%s has %d keys %s: %w", endpoint, len(resp.GetKvs()), key, err)
	}
	return 0, last
}

func (s *scenario) read(endpoint, key string) (*pb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), callLimit)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(s.cluster.Credentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(key)})
}

// eventually waits until a condition holds.
func (s *scenario) eventually(what string, condition func() error) {
	s.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(100 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not within %v: %v", what, waitLimit, err)
		}
	}
}
