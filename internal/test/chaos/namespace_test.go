//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// namespaces is a network on a bridge. It exists only in a process that has been started again by inNamespaces.
type namespaces struct {
	t      testing.TB
	cuts   [][2]int
	lone   []int
	shifts bool // the members' monotonic clocks begin at different times
}

// inNamespaces starts the test again in namespaces, and returns its output. It returns errNotAllowed if the kernel forbids it.
func inNamespaces(test string) ([]byte, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("%w: %v", errNotAllowed, err)
	}
	if out, err := owned(exec.Command("sh", "-ec", preparation)).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %v: %s", errNotAllowed, err, strings.TrimSpace(string(out)))
	}
	again := owned(exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v", "-test.timeout", "5m"))
	again.Env = append(os.Environ(), insideVariable+"="+built)
	return again.CombinedOutput()
}

var errNotAllowed = errors.New("network namespaces cannot be used here")

// preparation is a script that must work in the namespaces before the test starts in them.
const preparation = `
mount -t tmpfs none /run
mkdir /run/netns
ip link set lo up
ip link add bridge type bridge
ip addr add 10.77.0.1/24 dev bridge
ip link set bridge up
ip netns add probe
ip netns del probe
`

// owned makes a command run with its own network and mounts, and as root in its own user namespace unless we are root.
func owned(cmd *exec.Cmd) *exec.Cmd {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = a
	return cmd
}

func newNamespaces(t testing.TB) *namespaces {
	n := &namespaces{t: t}
	n.sh(preparation)
	for i := range slots {
		n.sh(fmt.Sprintf(`
			ip netns add %[1]s
			ip link add out-%[1]s type veth peer name in-%[1]s
			ip link set out-%[1]s master bridge up
			ip link set in-%[1]s netns %[1]s
			ip -n %[1]s addr add %[2]s/24 dev in-%[1]s
			ip -n %[1]s link set lo up
			ip -n %[1]s link set in-%[1]s up
		`, name(i), n.host(i)))
	}
	n.shifts = exec.Command("unshare", "-T", "--monotonic", "1", "--boottime", "1", "true").Run() == nil
	t.Logf("the members' monotonic clocks begin at different times: %v", n.shifts)
	return n
}

func (n *namespaces) sh(script string) {
	n.t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s\n%s", err, out, script)
	}
}

func (n *namespaces) host(i int) string     { return fmt.Sprintf("10.77.0.%d", 11+i) }
func (n *namespaces) endpoint(i int) string { return n.host(i) + ":2379" }
func (n *namespaces) peer(i int) string     { return n.host(i) + ":2380" }

func (n *namespaces) flags(i int) []string {
	return []string{"--peer-listen", n.peer(i), "--listen", n.endpoint(i)}
}

func (n *namespaces) command(i int, args []string) *exec.Cmd {
	before := []string{"netns", "exec", name(i)}
	if n.shifts {
		seconds := strconv.Itoa(1 + i*1_000_000)
		before = append(before, "unshare", "-T", "--monotonic", seconds, "--boottime", seconds)
	}
	return exec.Command("ip", append(append(before, built), args...)...)
}

func (n *namespaces) started(int, int) {}

func (n *namespaces) cut(from, to int) {
	n.cuts = append(n.cuts, [2]int{from, to})
	n.sh(fmt.Sprintf("ip -n %s route add blackhole %s/32", name(from), n.host(to)))
}

func (n *namespaces) isolate(i int) {
	n.lone = append(n.lone, i)
	n.sh(fmt.Sprintf("ip link set out-%s nomaster", name(i)))
}

func (n *namespaces) delay(time.Duration) error {
	for i := range slots {
		if out, err := exec.Command("tc", "qdisc", "add", "dev", "out-"+name(i), "root", "netem", "delay", "20ms").CombinedOutput(); err != nil {
			return fmt.Errorf("the kernel delays no packets here: %v: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func (n *namespaces) heal() {
	for _, c := range n.cuts {
		n.sh(fmt.Sprintf("ip -n %s route del blackhole %s/32", name(c[0]), n.host(c[1])))
	}
	for _, i := range n.lone {
		n.sh(fmt.Sprintf("ip link set out-%s master bridge", name(i)))
	}
	for i := range slots {
		_ = exec.Command("tc", "qdisc", "del", "dev", "out-"+name(i), "root").Run() // if it was added
	}
	n.cuts, n.lone = nil, nil
}
