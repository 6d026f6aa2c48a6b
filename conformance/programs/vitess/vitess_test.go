package vitess

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

const (
	// topologyPackage is the package whose tests are the suite.
	topologyPackage = "vitess.io/vitess/go/vt/topo/etcd2topo"

	// keyspaces is the number of keyspaces that are created and deleted.
	keyspaces = 60

	// writeLimit bounds the attempts to make one change.
	writeLimit = 2 * time.Minute
)

// Every test of Vitess' topology ends on a cluster of three as it ends on the etcd that Vitess is made for. The tests start
// a program named etcd.
func TestTopologySuite(t *testing.T) {
	suite.Need(t, "vitess")
	binary := filepath.Join(t.TempDir(), "suite.test")
	test := exec.Command("go", "test", "-vet=off", "-c", "-o", binary, topologyPackage)
	list := exec.Command("go", "list", "-f", "{{.Dir}}", topologyPackage)
	test.Dir, list.Dir = "modules", "modules"
	if _, err := suite.Output(test); err != nil {
		t.Fatal(err)
	}
	dir, err := suite.Output(list)
	if err != nil {
		t.Fatal(err)
	}
	client := cluster.Build(t, "vitess/modules", "vitess.io/vitess/go/cmd/vtctldclient")
	suite.Compare(t, suite.Suite{
		Binary: binary,
		Dir:    dir,
		Etcd:   cluster.Build(t, "vitess/modules", "go.etcd.io/etcd/server/v3"),
		Environment: func(program string) []string {
			bin := t.TempDir()
			for name, path := range map[string]string{"etcd": program, "vtctldclient": client} {
				if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
					t.Fatal(err)
				}
			}
			return []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		},
	})
}

// Keyspaces are created and deleted while the leader is killed and a member is replaced. The list has those that were
// created, and is empty in the end.
func TestTopologyOutlivesMembers(t *testing.T) {
	suite.Need(t, "vitess")
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			c := cluster.Start(t, kind, 3)
			topology := topology{t, cluster.Build(t, "vitess/modules", "vitess.io/vitess/go/cmd/vtctldclient"), strings.Join(c.Endpoints(), ",")}
			topology.change("already exists", "AddCellInfo", "--root", "/vitess/zone1", "--server-address", topology.endpoints, "zone1")

			creating := topology.each("CreateKeyspace", "already exists")
			creating.reaches(keyspaces / 8)
			c.Restart(c.KillLeader())
			t.Logf("%d keyspaces were created when the killed leader was back", creating.done.Load())
			c.ReplaceMember(c.Leader())
			t.Logf("%d keyspaces were created when the next leader was replaced", creating.done.Load())
			t.Logf("create: %v", creating.wait())
			var want []string
			for i := range keyspaces {
				want = append(want, nameOf(i))
			}
			topology.wantKeyspaces(want)

			deleting := topology.each("DeleteKeyspace", "doesn't exist")
			deleting.reaches(keyspaces / 8)
			c.Restart(c.KillLeader())
			t.Logf("%d keyspaces were deleted when the killed leader was back", deleting.done.Load())
			t.Logf("delete: %v", deleting.wait())
			topology.wantKeyspaces(nil)
		})
	}
}

// topology is Vitess' global topology in a cluster.
type topology struct {
	t         *testing.T
	client    string // the path of vtctldclient
	endpoints string
}

// run runs a command of vtctldclient.
func (g topology) run(args ...string) (string, error) {
	return suite.Output(exec.CommandContext(g.t.Context(), g.client, append([]string{
		"--server", "internal", "--topo-implementation", "etcd2",
		"--topo-global-server-address", g.endpoints, "--topo-global-root", "/vitess/global",
	}, args...)...))
}

// change runs a command until it succeeds, and returns the number of attempts that failed. After an attempt with an unknown
// outcome, an error with the text says that this attempt has made the change.
func (g topology) change(made string, args ...string) (failed int64, err error) {
	for deadline := time.Now().Add(writeLimit); ; time.Sleep(50 * time.Millisecond) {
		_, err = g.run(args...)
		if err == nil || failed > 0 && strings.Contains(err.Error(), made) {
			return failed, nil
		}
		if time.Now().After(deadline) || failed == 0 && strings.Contains(err.Error(), made) {
			return failed, fmt.Errorf("%v: %w", args, err)
		}
		failed++
	}
}

// wantKeyspaces fails the test if the list of keyspaces is another one.
func (g topology) wantKeyspaces(want []string) {
	g.t.Helper()
	out, err := g.run("GetKeyspaces")
	if err != nil {
		g.t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out) {
		if _, name, found := strings.Cut(line, `"name": "`); found {
			names = append(names, name[:strings.Index(name, `"`)])
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		g.t.Errorf("the keyspaces are %v, want %v\n%s", names, want, out)
	}
}

func nameOf(i int) string { return fmt.Sprintf("keyspace%02d", i) }

// changes makes one change to each keyspace, one after the other.
type changes struct {
	t     *testing.T
	began time.Time
	ended chan struct{}
	done  atomic.Int64 // changes that were made
	tries atomic.Int64 // attempts that failed
}

func (g topology) each(command, made string) *changes {
	c := &changes{t: g.t, began: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for i := range keyspaces {
			failed, err := g.change(made, command, nameOf(i))
			c.tries.Add(failed)
			if err != nil {
				g.t.Error(err)
				return
			}
			c.done.Add(1)
		}
	}()
	return c
}

// reaches waits until a number of changes is made.
func (c *changes) reaches(n int64) {
	c.t.Helper()
	for deadline := time.Now().Add(writeLimit); c.done.Load() < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%d changes were made within %v, want %d", c.done.Load(), writeLimit, n)
		}
	}
}

// wait waits for all changes and says how they went.
func (c *changes) wait() string {
	<-c.ended
	return fmt.Sprintf("%d keyspaces in %v, %d attempts failed", c.done.Load(), time.Since(c.began).Round(time.Millisecond), c.tries.Load())
}
