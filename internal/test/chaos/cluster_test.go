//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

const (
	// callLimit bounds each call of a client, whatever happens.
	callLimit = 10 * time.Second
	// attemptLimit is how long a client waits for one endpoint before it asks another.
	attemptLimit = time.Second
)

// cluster is three members, each a process, and a free slot.
type cluster struct {
	t       testing.TB
	net     network
	extra   []string // flags
	reach   int      // clients know the slots below; size unless the test replaces members
	members [slots]*member
}

type member struct {
	stubs
	id      uint64
	dir     string
	joins   bool     // it joins a cluster that exists
	process *process // nil while it does not run
}

// stubs are the services of one endpoint.
type stubs struct {
	at          int
	kv          pb.KVClient
	lease       pb.LeaseClient
	maintenance pb.MaintenanceClient
	names       leasekeeperv1.LeasekeeperClient
	changes     pb.ClusterClient
}

// process is one run of the command.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func startCluster(t testing.TB, n network, flags ...string) *cluster {
	g := &cluster{t: t, net: n, extra: flags, reach: size}
	for i := range slots {
		conn, err := grpc.NewClient("passthrough:///"+n.endpoint(i),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 300 * time.Millisecond},
				MinConnectTimeout: attemptLimit,
			}))
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		g.members[i] = &member{dir: t.TempDir(), stubs: stubs{
			i, pb.NewKVClient(conn), pb.NewLeaseClient(conn), pb.NewMaintenanceClient(conn), leasekeeperv1.NewLeasekeeperClient(conn),
			pb.NewClusterClient(conn),
		}}
	}
	t.Cleanup(func() {
		for i := range slots {
			g.kill(i)
		}
		if t.Failed() {
			g.showLogs()
		}
	})
	for i := range size {
		g.start(i)
	}
	g.whole()
	return g
}

// start starts a member on its data directory. It does not wait until the member serves.
func (g *cluster) start(i int) {
	g.t.Helper()
	m := g.members[i]
	args := append([]string{
		"serve", "--name", name(i), "--data-dir", m.data(), "--http", "off", "--min-free-bytes", "0",
	}, g.extra...)
	if m.joins {
		args = append(args, "--join", g.contacts(i), "--peer-advertise", g.net.peer(i))
	} else {
		args = append(args, "--initial-cluster", list(g.net.peer))
	}
	cmd := g.net.command(i, append(args, g.net.flags(i)...))
	logs, err := os.OpenFile(m.logs(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(g.t, err)
	defer logs.Close()
	cmd.Stderr = logs
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // other settings must not reach the member
	// No member outlives the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(g.t, cmd.Start())
	p := &process{cmd, make(chan struct{})}
	m.process = p
	g.net.started(i, cmd.Process.Pid)
	go func() {
		_ = cmd.Wait() // the way it ended does not matter
		close(p.ended)
	}()
}

func (m *member) logs() string { return filepath.Join(m.dir, "log") }
func (m *member) data() string { return filepath.Join(m.dir, "data") }

// contacts returns where a member that joins finds the running ones.
func (g *cluster) contacts(joiner int) string {
	var all []string
	for i, m := range g.members {
		if i != joiner && m.process != nil {
			all = append(all, g.net.peer(i))
		}
	}
	return strings.Join(all, ",")
}

// signal sends a running member a signal.
func (g *cluster) signal(i int, s syscall.Signal) {
	g.t.Helper()
	must(g.t, g.members[i].process.cmd.Process.Signal(s))
}

// kill kills a member, if it runs, and waits for its end.
func (g *cluster) kill(i int) {
	p := g.members[i].process
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	g.members[i].process = nil
}

// freeze stops a member with SIGSTOP, and returns once the kernel has stopped it.
func (g *cluster) freeze(i int) {
	g.t.Helper()
	g.signal(i, syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", g.members[i].process.cmd.Process.Pid)
	g.eventually("a member has stopped", func() bool {
		text, err := os.ReadFile(stat)
		must(g.t, err)
		_, after, _ := bytes.Cut(text, []byte(") "))
		return len(after) > 0 && after[0] == 'T'
	})
}

// eventually waits until holds returns true. It ends the test after 20 s.
func (g *cluster) eventually(what string, holds func() bool) {
	g.t.Helper()
	const patience = 20 * time.Second
	for limit := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			g.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// leader waits for a member that reports itself as the leader in the newest term, and returns it.
func (g *cluster) leader() (leader int) {
	g.t.Helper()
	g.eventually("a member leads", func() bool {
		leader = -1
		newest := uint64(0)
		for i, m := range g.members {
			if s := m.status(); s.GetHeader().GetMemberId() != 0 {
				m.id = s.Header.MemberId
				if s.Leader == m.id && s.RaftTerm >= newest {
					leader = i
				}
				newest = max(newest, s.RaftTerm)
			}
		}
		return leader >= 0
	})
	return leader
}

// status returns a member's own status; nil if it does not answer.
func (m *member) status() *pb.StatusResponse {
	if m.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptLimit/2)
	defer cancel()
	s, err := m.maintenance.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil
	}
	return s
}

// whole waits until every member that runs answers a linearizable read.
func (g *cluster) whole() {
	g.t.Helper()
	for i, m := range g.members {
		if m.process == nil {
			continue
		}
		g.eventually("member "+name(i)+" serves", func() bool {
			ctx, cancel := context.WithTimeout(g.t.Context(), attemptLimit)
			defer cancel()
			_, err := m.kv.Range(ctx, &pb.RangeRequest{Key: []byte("anything")})
			return err == nil
		})
	}
}

// showLogs logs the end of each member's log. The flag -artifacts keeps all of it.
func (g *cluster) showLogs() {
	const most = 6 << 10
	for i, m := range g.members {
		text, err := os.ReadFile(m.logs())
		if err != nil {
			continue // nothing ever ran in this slot
		}
		must(g.t, os.WriteFile(filepath.Join(g.t.ArtifactDir(), name(i)+".log"), text, 0o600))
		g.t.Logf("the log of %s ends with\n%s", name(i), text[max(0, len(text)-most):])
	}
}
