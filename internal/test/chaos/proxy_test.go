//go:build linux

package chaos

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// outside is the number of clients, among the numbers of members.
const outside = -1

// proxied is a network in which every connection passes through this process.
type proxied struct {
	t              testing.TB
	fronts, peers  [slots]*relay // dialled by clients and by members
	clients, inner [slots]string // where members listen
	running        sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond
	pids   [slots]int
	severs map[[2]int]bool // from, to
	late   time.Duration
	closed bool
	conns  map[net.Conn]bool
}

func newProxied(t testing.TB) *proxied {
	p := &proxied{t: t, severs: make(map[[2]int]bool), conns: make(map[net.Conn]bool)}
	p.moved = sync.NewCond(&p.mu)
	free := freeAddresses(t, 2*slots)
	for i := range slots {
		p.clients[i], p.inner[i] = free[2*i], free[2*i+1]
		p.fronts[i] = p.relay(i, p.clients[i], false)
		p.peers[i] = p.relay(i, p.inner[i], true)
	}
	t.Cleanup(p.close)
	return p
}

// allotted holds the addresses that freeAddresses has returned to any test of this process.
var allotted sync.Map

// freeAddresses returns addresses without a listener. Nobody else takes them while no member listens there: their ports are
// below those that systems give out by themselves, and each is returned once. A test with another's member at an address of
// its own would see another's data.
func freeAddresses(t testing.TB, n int) (all []string) {
	for range 100 * n {
		address := fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		must(t, l.Close())
		if _, taken := allotted.LoadOrStore(address, true); taken {
			continue
		}
		if all = append(all, address); len(all) == n {
			return all
		}
	}
	t.Fatal("there are no free ports")
	return nil
}

func (p *proxied) endpoint(i int) string { return p.fronts[i].address() }

func (p *proxied) peer(i int) string { return p.peers[i].address() }

func (p *proxied) flags(i int) []string {
	return []string{"--peer-listen", p.inner[i], "--listen", p.clients[i], "--advertise", p.endpoint(i)}
}

func (p *proxied) command(_ int, args []string) *exec.Cmd { return exec.Command(built, args...) }

// started records the process of a member, to find the dialler of a connection.
func (p *proxied) started(i, pid int) { p.set(func() { p.pids[i] = pid }) }

func (p *proxied) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.moved.Broadcast()
}

func (p *proxied) cut(from, to int) { p.set(func() { p.severs[[2]int{from, to}] = true }) }

func (p *proxied) isolate(i int) {
	p.set(func() {
		for _, other := range append(others(i), outside) {
			p.severs[[2]int{i, other}], p.severs[[2]int{other, i}] = true, true
		}
	})
}

func (p *proxied) delay(by time.Duration) error {
	p.set(func() { p.late = by })
	return nil
}

func (p *proxied) heal() { p.set(func() { clear(p.severs); p.late = 0 }) }

func (p *proxied) close() {
	for i := range slots {
		p.fronts[i].listener.Close()
		p.peers[i].listener.Close()
	}
	p.set(func() {
		p.closed = true
		for c := range p.conns {
			c.Close()
		}
	})
	p.running.Wait()
}

// relay is a proxy in front of one port of a member.
type relay struct {
	p        *proxied
	listener net.Listener
	member   int
	target   string
	private  bool // only members dial it
}

func (p *proxied) relay(member int, target string, private bool) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(p.t, err)
	r := &relay{p, l, member, target, private}
	p.running.Go(r.accept)
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.p.running.Go(func() { r.carry(from) })
	}
}

// carry forwards a connection until one side ends it.
func (r *relay) carry(dialled net.Conn) {
	defer dialled.Close()
	dialler := outside
	if r.private {
		if dialler = r.p.dialler(dialled.RemoteAddr().(*net.TCPAddr).Port); dialler == outside {
			return // the member has ended by now
		}
	}
	onward, err := net.DialTimeout("tcp", r.target, time.Second)
	if err != nil {
		return
	}
	defer onward.Close()
	r.p.set(func() {
		r.p.conns[dialled], r.p.conns[onward] = true, true
		if r.p.closed {
			dialled.Close()
			onward.Close()
		}
	})
	defer r.p.set(func() { delete(r.p.conns, dialled); delete(r.p.conns, onward) })
	var both sync.WaitGroup
	both.Go(func() { r.p.pass(onward, dialled, [2]int{dialler, r.member}) })
	both.Go(func() { r.p.pass(dialled, onward, [2]int{r.member, dialler}) })
	both.Wait()
}

// pass forwards one direction.
func (p *proxied) pass(to, from net.Conn, direction [2]int) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if !p.open(direction) || err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// open waits until bytes may be forwarded in a direction. It returns false once the network is closed.
func (p *proxied) open(direction [2]int) bool {
	p.mu.Lock()
	late := p.late
	p.mu.Unlock()
	if late > 0 && direction[0] != outside && direction[1] != outside {
		time.Sleep(late)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.severs[direction] && !p.closed {
		p.moved.Wait()
	}
	return !p.closed
}

// dialler returns the member whose process has the socket with that local port, or outside.
func (p *proxied) dialler(port int) int {
	inode := inodeOf(port)
	if inode == "" {
		return outside
	}
	p.mu.Lock()
	pids := p.pids
	p.mu.Unlock()
	for i, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, f := range files {
			if link, _ := os.Readlink(f); link == "socket:["+inode+"]" {
				return i
			}
		}
	}
	return outside
}

// inodeOf returns the inode of the connected socket with that local port; "" if there is none.
func inodeOf(port int) string {
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer table.Close()
	local := fmt.Sprintf("0100007F:%04X", port)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		if word := strings.Fields(lines.Text()); len(word) > 9 && word[1] == local && word[9] != "0" {
			return word[9]
		}
	}
	return ""
}
