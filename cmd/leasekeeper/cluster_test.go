package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptCluster is the cluster of a script.
type scriptCluster struct {
	addresses map[string]string // peer address by name
	list      string            // the value of --initial-cluster
	more      []string          // flags of all members
	members   map[string]*running
	starting  int           // number of started members whose outcome is not received from launched yet
	launched  chan launched // receives the outcome of each started member
	over      chan struct{} // closed at the end of the script
}

// launched is the outcome of starting a member.
type launched struct {
	name string
	r    *running
	err  error
}

// clustersOfScripts holds the cluster of each script.
var clustersOfScripts = newTable[*testscript.TestScript, *scriptCluster]()

func scriptMembers(ts *testscript.TestScript, neg bool, names []string) {
	var more []string
	if i := slices.Index(names, "--"); i >= 0 {
		names, more = names[:i], names[i+1:]
	}
	if neg || len(names) < 2 {
		ts.Fatalf("usage: members NAME NAME... [-NAME...] [-- FLAGS]")
	}
	c := &scriptCluster{addresses: make(map[string]string), more: more, members: make(map[string]*running), launched: make(chan launched), over: make(chan struct{})}
	ts.Defer(c.end)
	clustersOfScripts.set(ts, c)
	addresses := freeAddresses(ts, len(names))
	var list, here []string
	for i, name := range names {
		name, missing := strings.CutPrefix(name, "-")
		list = append(list, name+"="+addresses[i])
		c.addresses[name] = addresses[i]
		if !missing {
			here = append(here, name)
		}
	}
	c.list = strings.Join(list, ",")
	if len(here) == len(names) {
		for _, name := range here {
			c.start(ts, name)
		}
		c.await(ts)
		return
	}
	c.begin(ts, here)
}

// begin starts members that may never become ready. They would not print their endpoints, so begin chooses these.
func (c *scriptCluster) begin(ts *testscript.TestScript, names []string) {
	for i, endpoint := range freeAddresses(ts, len(names)) {
		c.start(ts, names[i], "--listen", endpoint)
		ts.Setenv(strings.ToUpper(names[i]), endpoint)
	}
}

func scriptBegin(ts *testscript.TestScript, neg bool, names []string) {
	c := clustersOfScripts.get(ts)
	if neg || c == nil || len(names) == 0 {
		ts.Fatalf("usage: begin NAME..., after members")
	}
	c.begin(ts, names)
}

// scriptJoin starts the named members, which were missing, and waits until all members are ready.
func scriptJoin(ts *testscript.TestScript, neg bool, names []string) {
	c := clustersOfScripts.get(ts)
	if neg || c == nil {
		ts.Fatalf("usage: join [NAME...], after members")
	}
	for _, name := range names {
		c.start(ts, name)
	}
	c.await(ts)
}

func scriptSpare(ts *testscript.TestScript, neg bool, names []string) {
	c := clustersOfScripts.get(ts)
	if neg || c == nil || len(names) != 1 {
		ts.Fatalf("usage: spare NAME, after members")
	}
	c.addresses[names[0]] = freeAddresses(ts, 1)[0]
	ts.Setenv("PEER_"+strings.ToUpper(names[0]), c.addresses[names[0]])
}

func scriptGrow(ts *testscript.TestScript, neg bool, names []string) {
	c := clustersOfScripts.get(ts)
	if neg || c == nil || len(names) != 1 || c.addresses[names[0]] == "" {
		ts.Fatalf("usage: grow NAME, after spare NAME")
	}
	var others []string
	for name, address := range c.addresses {
		if name != names[0] && c.members[name] != nil {
			others = append(others, address)
		}
	}
	c.startWith(ts, names[0], "--join", strings.Join(others, ","), "--peer-advertise", c.addresses[names[0]])
	c.await(ts)
}

// start starts a member without waiting for it.
func (c *scriptCluster) start(ts *testscript.TestScript, name string, args ...string) {
	c.startWith(ts, name, append(args, "--initial-cluster", c.list)...)
}

// startWith is start for a member with these flags about its cluster.
func (c *scriptCluster) startWith(ts *testscript.TestScript, name string, args ...string) {
	dir := ts.MkAbs(name)
	ts.Check(os.MkdirAll(dir, 0o700))
	args = append(args, "--name", name, "--peer-listen", c.addresses[name], "--data-dir", "data")
	args = append(args, c.more...)
	env := environment(ts)
	c.starting++
	go func() {
		r, err := launch(launchOptions{dir: dir, env: env, args: args, over: c.over})
		c.launched <- launched{name, r, err}
	}()
}

// end kills the started members that await did not take.
func (c *scriptCluster) end() {
	close(c.over)
	for ; c.starting > 0; c.starting-- {
		if one := <-c.launched; one.r != nil {
			one.r.kill()
		}
	}
}

// failures returns why started members have ended before they were ready, as far as that is known.
func (c *scriptCluster) failures(ts *testscript.TestScript) (all error) {
	for {
		select {
		case one := <-c.launched:
			c.starting--
			all = errors.Join(all, c.take(ts, one))
		default:
			return all
		}
	}
}

// take keeps a member that has become ready, and returns why it has not.
func (c *scriptCluster) take(ts *testscript.TestScript, one launched) error {
	if one.err != nil {
		return fmt.Errorf("%s: %w", one.name, one.err)
	}
	ts.Defer(one.r.kill)
	c.members[one.name] = one.r
	ts.Setenv(strings.ToUpper(one.name), one.r.endpoint)
	return nil
}

// await returns when all started members are ready.
func (c *scriptCluster) await(ts *testscript.TestScript) {
	var failure error
	for ; c.starting > 0; c.starting-- {
		failure = errors.Join(failure, c.take(ts, <-c.launched))
	}
	ts.Check(failure)
}

// lastPort is the port that freeAddresses has tried last, counted from the first one. Each run begins elsewhere, because the
// members of another run of these tests may be alive.
var lastPort = func() *atomic.Int64 {
	var n atomic.Int64
	n.Store(rand.Int64N(manyPorts))
	return &n
}()

const firstPort, manyPorts = 12_000, 16_000

// freeAddresses returns addresses on which no program listens, and none of them twice. Their ports are below the range from
// which systems assign ports to clients and listeners. So they stay free until a member listens, which may be late.
func freeAddresses(t interface{ Fatalf(string, ...any) }, n int) []string {
	const tries = 100
	var addresses []string
	for range tries {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+lastPort.Add(1)%manyPorts))
		if err != nil {
			continue // the port is taken
		}
		defer l.Close()
		if addresses = append(addresses, l.Addr().String()); len(addresses) == n {
			return addresses
		}
	}
	t.Fatalf("no addresses are free")
	return nil
}

// launchCluster starts the members of a cluster, and returns them when all are ready.
func launchCluster(t *testing.T, names ...string) []*running {
	t.Helper()
	addresses := freeAddresses(t, len(names))
	var list []string
	for i, name := range names {
		list = append(list, name+"="+addresses[i])
	}
	members, failures := make([]*running, len(names)), make([]error, len(names))
	var starting sync.WaitGroup
	for i, name := range names {
		o := launchOptions{dir: t.TempDir(), env: []string{"PATH=" + os.Getenv("PATH")}, over: t.Context().Done(), args: []string{
			"--data-dir", "data", "--log-level", "warn", "--name", name, "--peer-listen", addresses[i], "--initial-cluster", strings.Join(list, ",")}}
		starting.Go(func() { members[i], failures[i] = launch(o) })
	}
	starting.Wait()
	for _, m := range members {
		if m != nil {
			t.Cleanup(m.kill)
		}
	}
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	return members
}

func scriptStopOne(ts *testscript.TestScript, neg bool, args []string) {
	c := clustersOfScripts.get(ts)
	if neg || len(args) != 3 || c == nil || c.members[args[0]] == nil {
		ts.Fatalf("usage: stopone NAME term|int|kill CODE, after members")
	}
	haltServer(ts, c.members[args[0]], args[0]+"/server.err", args[1:])
}

func scriptEnded(ts *testscript.TestScript, neg bool, args []string) {
	c := clustersOfScripts.get(ts)
	if neg || len(args) != 2 || c == nil || c.members[args[0]] == nil {
		ts.Fatalf("usage: ended NAME CODE, after members")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := c.members[args[0]].wait(); got != want {
		ts.Fatalf("ended with code %d, want %d; it wrote:\n%s", got, want, ts.ReadFile(args[0]+"/server.err"))
	}
	delete(c.members, args[0])
}
