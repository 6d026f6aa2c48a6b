package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptGroup is the group of a script.
type scriptGroup struct {
	addresses map[string]string // where the others reach each
	list      string            // of the initial cluster
	more      []string          // settings of all
	members   map[string]*running
	starting  int           // how many have been started and are not known to be ready
	launched  chan launched // the answer of each that has been started
	over      chan struct{} // closed at the end of the script
}

type launched struct {
	name string
	r    *running
	err  error
}

// groupsOfScripts has the group of each script.
var groupsOfScripts = newTable[*testscript.TestScript, *scriptGroup]()

func scriptMembers(ts *testscript.TestScript, neg bool, names []string) {
	var more []string
	if i := slices.Index(names, "--"); i >= 0 {
		names, more = names[:i], names[i+1:]
	}
	if neg || len(names) < 2 {
		ts.Fatalf("usage: members NAME NAME... [-NAME...] [-- FLAGS]")
	}
	g := &scriptGroup{addresses: make(map[string]string), more: more, members: make(map[string]*running), launched: make(chan launched), over: make(chan struct{})}
	ts.Defer(g.end)
	groupsOfScripts.set(ts, g)
	addresses := freeAddresses(ts, len(names))
	var list, here []string
	for i, name := range names {
		name, missing := strings.CutPrefix(name, "-")
		list = append(list, name+"="+addresses[i])
		g.addresses[name] = addresses[i]
		if !missing {
			here = append(here, name)
		}
	}
	g.list = strings.Join(list, ",")
	if len(here) == len(names) {
		for _, name := range here {
			g.start(ts, name)
		}
		g.await(ts)
		return
	}
	g.begin(ts, here)
}

// begin starts members that may never get ready, and so would not tell their endpoints: each is given one.
func (g *scriptGroup) begin(ts *testscript.TestScript, names []string) {
	for i, endpoint := range freeAddresses(ts, len(names)) {
		g.start(ts, names[i], "--listen", endpoint)
		ts.Setenv(strings.ToUpper(names[i]), endpoint)
	}
}

func scriptBegin(ts *testscript.TestScript, neg bool, names []string) {
	g := groupsOfScripts.get(ts)
	if neg || g == nil || len(names) == 0 {
		ts.Fatalf("usage: begin NAME..., after members")
	}
	g.begin(ts, names)
}

// scriptJoin starts a member that was missing, if one is named, and awaits all.
func scriptJoin(ts *testscript.TestScript, neg bool, names []string) {
	g := groupsOfScripts.get(ts)
	if neg || g == nil {
		ts.Fatalf("usage: join [NAME...], after members")
	}
	for _, name := range names {
		g.start(ts, name)
	}
	g.await(ts)
}

// start starts a member, and does not wait for it.
func (g *scriptGroup) start(ts *testscript.TestScript, name string, args ...string) {
	dir := ts.MkAbs(name)
	ts.Check(os.MkdirAll(dir, 0o700))
	args = append(args, "--name", name, "--initial-cluster", g.list, "--peer-listen", g.addresses[name], "--data-dir", "data")
	args = append(args, g.more...)
	env := environment(ts)
	g.starting++
	go func() {
		r, err := launch(launchOptions{dir: dir, env: env, args: args, over: g.over})
		g.launched <- launched{name, r, err}
	}()
}

// end ends the members that nobody awaits.
func (g *scriptGroup) end() {
	close(g.over)
	for ; g.starting > 0; g.starting-- {
		if one := <-g.launched; one.r != nil {
			one.r.kill()
		}
	}
}

// await returns when all members that have been started are ready.
func (g *scriptGroup) await(ts *testscript.TestScript) {
	var failure error
	for ; g.starting > 0; g.starting-- {
		one := <-g.launched
		if one.err != nil {
			failure = fmt.Errorf("%s: %w", one.name, one.err)
			continue
		}
		ts.Defer(one.r.kill)
		g.members[one.name] = one.r
		ts.Setenv(strings.ToUpper(one.name), one.r.endpoint)
	}
	ts.Check(failure)
}

// freeAddresses returns addresses on which nobody listens now. Systems give out ports from above these by
// themselves, to any client that connects and to tests that run alongside this one, so they stay free until a member
// listens.
func freeAddresses(ts *testscript.TestScript, n int) []string {
	const first, many, tries = 12_000, 16_000, 100
	var addresses []string
	for range tries {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(many)))
		if err != nil {
			continue // that one is taken
		}
		defer l.Close()
		if addresses = append(addresses, l.Addr().String()); len(addresses) == n {
			return addresses
		}
	}
	ts.Fatalf("no addresses are free")
	return nil
}

func scriptStopOne(ts *testscript.TestScript, neg bool, args []string) {
	g := groupsOfScripts.get(ts)
	if neg || len(args) != 3 || g == nil || g.members[args[0]] == nil {
		ts.Fatalf("usage: stopone NAME term|int|kill CODE, after members")
	}
	haltServer(ts, g.members[args[0]], args[0]+"/server.err", args[1:])
}
