//go:build linux

package deploy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// programVariable has the path of the program, and is set only in the namespaces.
const programVariable = "LEASEKEEPER_TEST_DEPLOY_PROGRAM"

// TestStatefulSetLives takes the manifest through its life as docs/operations.md describes it: a rollout, two more members,
// a member without its volume, and two members fewer. No put is lost.
func TestStatefulSetLives(t *testing.T) {
	program := os.Getenv(programVariable)
	if program == "" {
		inNamespaces(t)
		return
	}
	p := newPlatform(t, program)
	defer func() {
		for _, d := range p.pods {
			if t.Failed() {
				t.Logf("%s:\n%s", d.name, &d.log)
			}
			d.stop()
		}
	}()
	written := 0
	write := func() {
		t.Helper()
		for _, d := range p.pods {
			if d.ready() {
				d.put(written)
				written++
			}
		}
		for i := range written {
			p.pods[0].get(i)
		}
	}

	p.scale(int(*p.m.set.Spec.Replicas))
	for _, d := range p.pods {
		d.await()
	}
	write()
	p.rollout()
	write()

	t.Log("two more members")
	p.args = extended(t, p.args)
	for _, n := range []int{4, 5} {
		name := p.podName(n - 1)
		p.pods[0].exec("member", "add", name, "--peer", name+"."+p.m.set.Spec.ServiceName+":2380", "--learner")
		p.scale(n)
		p.pods[0].exec("member", "promote", name, "--wait", "1m")
		p.pods[n-1].await()
	}
	p.rollout()
	p.voters(5)
	write()

	t.Log("a member without its volume")
	lost := p.pods[1]
	lost.stop()
	lost.newVolume()
	lost.start() // it ends, and starts again, until it may join
	p.pods[0].exec("member", "remove", lost.name)
	p.pods[0].exec("member", "add", lost.name, "--peer", lost.name+"."+p.m.set.Spec.ServiceName+":2380", "--wait", "1m")
	lost.await()
	p.voters(5)
	write()

	t.Log("two members fewer")
	for _, n := range []int{4, 3} {
		p.pods[0].exec("member", "remove", p.podName(n))
		p.scale(n)
	}
	p.voters(3)
	write()
	p.rollout()
	write()
}

// extended returns the arguments with two more members, as docs/operations.md says.
func extended(t testing.TB, args []string) (more []string) {
	found := false
	for _, a := range args {
		if strings.HasPrefix(a, "--initial-cluster=") {
			found = true
			a += ",leasekeeper-3=leasekeeper-3.leasekeeper-peers:2380,leasekeeper-4=leasekeeper-4.leasekeeper-peers:2380"
			more = append(more, "--initial-cluster-state=existing")
		}
		more = append(more, a)
	}
	if !found {
		t.Fatal("the manifest has no --initial-cluster")
	}
	return more
}

// voters fails the test unless the cluster has that many members, all with a vote.
func (p *platform) voters(want int) {
	p.t.Helper()
	list := p.pods[0].exec("member", "list")
	if got := strings.Count(list, " voter "); got != want || strings.Contains(list, "learner") {
		p.t.Fatalf("the cluster has not %d voters:\n%s", want, list)
	}
}

// call makes a request of etcd's API as JSON to the pod.
func (d *pod) call(path, body string) string {
	d.p.t.Helper()
	url := fmt.Sprintf("http://%s:%d/v3/kv/%s", address(d.ordinal), d.p.m.clients.Spec.Ports[0].Port, path)
	answer, err := http.Post(url, "application/json", strings.NewReader(body))
	d.p.must(err)
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	d.p.must(err)
	if answer.StatusCode != http.StatusOK {
		d.p.t.Fatalf("%s of %s: %s: %s", path, d.name, answer.Status, text)
	}
	return string(text)
}

func inBase64(i int) string { return base64.StdEncoding.EncodeToString(fmt.Append(nil, "key/", i)) }

func (d *pod) put(i int) {
	d.p.t.Helper()
	d.call("put", fmt.Sprintf(`{"key": %q, "value": %q}`, inBase64(i), inBase64(i)))
}

func (d *pod) get(i int) {
	d.p.t.Helper()
	if text := d.call("range", fmt.Sprintf(`{"key": %q}`, inBase64(i))); !strings.Contains(text, `"value":"`+inBase64(i)) {
		d.p.t.Fatalf("%s lost put %d: %s", d.name, i, text)
	}
}

// inNamespaces builds the program, and runs this test again in namespaces, in which it may make networks and mounts.
func inNamespaces(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "leasekeeper")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/leasekeeper")
	build.Dir, build.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=0") // as in Containerfile
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v: %s", err, out)
	}
	if err := allowed(); err != nil {
		if required.Is("namespaces") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	again := owned(exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "10m"))
	again.Env = append(os.Environ(), programVariable+"="+program)
	out, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}

var errNotAllowed = errors.New("this system does not allow network namespaces")

// allowed returns errNotAllowed unless namespaces can be made here.
func allowed() error {
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("%w: %v", errNotAllowed, err)
	}
	const attempt = "mount -t tmpfs none /run; mkdir /run/netns; ip link add bridge type bridge; ip netns add probe; ip netns del probe"
	if out, err := owned(exec.Command("sh", "-ec", attempt)).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %v: %s", errNotAllowed, err, out)
	}
	return nil
}

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
