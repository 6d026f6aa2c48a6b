//go:build linux

package deploy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// most is the number of pods that the network has room for.
	most = 5
	// startLimit bounds how long a pod may take to become ready.
	startLimit = 60 * time.Second
	// probeInterval is the time between two probes.
	probeInterval = 50 * time.Millisecond
)

// platform runs the pods of the manifest as Kubernetes does, as far as the members see it.
type platform struct {
	t       testing.TB
	m       manifest
	args    []string // of the containers that start from now on, before variables are replaced
	secret  map[string][]byte
	program string
	dir     string
	hosts   string // the file that stands for the cluster's DNS
	pods    []*pod
}

// pod is one pod: a container, its volume and its network.
type pod struct {
	p       *platform
	ordinal int
	name    string
	root    string // the root directory of its container
	log     logBuffer
	cmd     *exec.Cmd
	ended   chan struct{}
	stopped bool // whether Kubernetes wants it to end; otherwise it starts again
	mu      sync.Mutex
}

// logBuffer keeps what a container writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// address returns the address of the pod with an ordinal.
func address(ordinal int) string { return fmt.Sprintf("10.78.0.%d", 10+ordinal) }

func newPlatform(t testing.TB, program string) *platform {
	p := &platform{t: t, m: readManifest(t), program: program, dir: t.TempDir()}
	p.args = p.m.container().Args
	var hosts strings.Builder
	fmt.Fprintln(&hosts, "127.0.0.1 localhost")
	var names []string
	for i := range most {
		host := fmt.Sprintf("%s-%d.%s", p.m.set.Name, i, p.m.set.Spec.ServiceName)
		names = append(names, host)
		fmt.Fprintln(&hosts, address(i), host)
	}
	p.hosts = filepath.Join(p.dir, "hosts")
	p.must(os.WriteFile(p.hosts, []byte(hosts.String()), 0o644))
	p.secret = certificates(t, names)
	p.must(os.Chmod(p.dir, 0o755))
	p.sh(`
		mount -t tmpfs none /run
		mkdir /run/netns
		ip link set lo up
		ip link add pods type bridge
		ip addr add 10.78.0.1/24 dev pods
		ip link set pods up`)
	for i := range most {
		p.sh(fmt.Sprintf(`
			ip netns add %[1]s
			ip link add out-%[2]d type veth peer name in-%[2]d
			ip link set out-%[2]d master pods up
			ip link set in-%[2]d netns %[1]s
			ip -n %[1]s addr add %[3]s/24 dev in-%[2]d
			ip -n %[1]s link set lo up
			ip -n %[1]s link set in-%[2]d up`, p.podName(i), i, address(i)))
	}
	return p
}

func (p *platform) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *platform) sh(script string) {
	p.t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s\n%s", err, out, script)
	}
}

func (p *platform) podName(ordinal int) string { return fmt.Sprintf("%s-%d", p.m.set.Name, ordinal) }

// user returns the user that the containers run as; 0 if the test may not choose.
func (p *platform) user() int64 {
	if out, err := os.ReadFile("/proc/self/uid_map"); err != nil || len(strings.Fields(string(out))) != 3 || !strings.HasSuffix(strings.TrimSpace(string(out)), "4294967295") {
		return 0
	}
	return *p.m.set.Spec.Template.Spec.SecurityContext.RunAsUser
}

// scale sets the number of pods, as spec.replicas does. New pods start at once.
func (p *platform) scale(replicas int) {
	p.t.Helper()
	for len(p.pods) < replicas {
		pod := &pod{p: p, ordinal: len(p.pods), name: p.podName(len(p.pods))}
		pod.root = filepath.Join(p.dir, pod.name)
		pod.build()
		p.pods = append(p.pods, pod)
		pod.start()
	}
	for len(p.pods) > replicas {
		last := p.pods[len(p.pods)-1]
		p.pods = p.pods[:len(p.pods)-1]
		last.stop()
	}
}

// build makes the root directory of the container: the image, which has nothing but the program, and what is mounted.
func (d *pod) build() {
	p := d.p
	p.must(os.MkdirAll(d.root, 0o755))
	for _, dir := range []string{"proc", "sys", "etc"} {
		p.must(os.MkdirAll(filepath.Join(d.root, dir), 0o755))
	}
	p.sh(fmt.Sprintf("cp %[1]s %[2]s/leasekeeper; cp %[3]s %[2]s/etc/hosts", p.program, d.root, p.hosts))
	d.newVolume()
	for _, mount := range p.m.container().VolumeMounts {
		at := filepath.Join(d.root, mount.MountPath)
		for _, v := range p.m.set.Spec.Template.Spec.Volumes {
			if v.Name != mount.Name || v.Secret == nil {
				continue
			}
			p.must(os.MkdirAll(at, 0o755))
			for name, content := range p.secret {
				file := filepath.Join(at, name)
				p.must(os.WriteFile(file, content, os.FileMode(*v.Secret.DefaultMode)))
				p.must(os.Chown(file, 0, int(p.user())))
			}
		}
	}
}

// newVolume gives the pod an empty volume in place of the one that it has.
func (d *pod) newVolume() {
	p := d.p
	for _, claim := range p.m.set.Spec.VolumeClaimTemplates {
		for _, mount := range p.m.container().VolumeMounts {
			if mount.Name != claim.Name {
				continue
			}
			at := filepath.Join(d.root, mount.MountPath)
			p.must(os.RemoveAll(at))
			p.must(os.MkdirAll(at, 0o755))
			p.must(os.Chown(at, 0, int(p.user())))
			p.must(os.Chmod(at, 0o2775|os.ModeSetgid))
		}
	}
}

// environment returns the variables of the container.
func (d *pod) environment() (all []corev1.EnvVar) {
	for _, v := range d.p.m.container().Env {
		if v.ValueFrom != nil {
			if v.ValueFrom.FieldRef == nil || v.ValueFrom.FieldRef.FieldPath != "metadata.name" {
				d.p.t.Fatalf("%s has a source that this test does not know", v.Name)
			}
			v.Value = d.name
		}
		all = append(all, v)
	}
	return all
}

// inContainer is a script that runs a command in the container with the root directory $0. ip makes a mount namespace for
// it, so the mounts end with the command.
const inContainer = `
mount --rbind /proc $0/proc
mount --rbind /sys $0/sys
user=$1
shift
exec chroot $user $0 "$@"`

// command returns a command in the container, as kubectl exec runs it.
func (d *pod) command(args ...string) *exec.Cmd {
	user := "" // as the test's own
	if u := d.p.user(); u != 0 {
		user = fmt.Sprintf("--userspec=%d:%d", u, u)
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", d.name, "sh", "-ec", inContainer, d.root, user}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, v := range d.environment() {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	return cmd
}

// start starts the container, and starts it again whenever it ends by itself.
func (d *pod) start() {
	d.p.t.Helper()
	args := slices.Clone(d.p.args)
	for i := range args {
		for _, v := range d.environment() {
			args[i] = strings.ReplaceAll(args[i], "$("+v.Name+")", v.Value)
		}
	}
	d.stopped, d.ended = false, make(chan struct{})
	d.cmd = d.launch(args)
	go func() {
		defer close(d.ended)
		for {
			err := d.cmd.Wait()
			d.mu.Lock()
			if d.stopped {
				d.mu.Unlock()
				if err != nil {
					fmt.Fprintf(&d.log, "the container ended: %v\n", err)
				}
				return
			}
			fmt.Fprintf(&d.log, "the container ended by itself: %v\n", err)
			d.mu.Unlock()
			time.Sleep(500 * time.Millisecond) // the back-off of Kubernetes
			d.mu.Lock()
			if d.stopped {
				d.mu.Unlock()
				return
			}
			d.cmd = d.launch(args)
			d.mu.Unlock()
		}
	}()
}

func (d *pod) launch(args []string) *exec.Cmd {
	cmd := d.command(append([]string{"/leasekeeper"}, args...)...)
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

// stop ends the container as Kubernetes does. It must end by itself within its grace period.
func (d *pod) stop() {
	d.p.t.Helper()
	d.mu.Lock()
	d.stopped = true
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	d.mu.Unlock()
	select {
	case <-d.ended:
	case <-time.After(time.Duration(*d.p.m.set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second):
		d.p.t.Fatalf("%s did not end within its grace period:\n%s", d.name, &d.log)
	}
}

// restart replaces a pod: the new one has the present arguments, the same name and the same volume.
func (d *pod) restart() {
	d.p.t.Helper()
	d.stop()
	if state := d.cmd.ProcessState; !state.Success() {
		d.p.t.Fatalf("%s ended with %v:\n%s", d.name, state, &d.log)
	}
	d.start()
}

// ready reports whether the readiness probe succeeds now.
func (d *pod) ready() bool {
	probe := d.p.m.container().ReadinessProbe.HTTPGet
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get(fmt.Sprintf("http://%s:%d%s", address(d.ordinal), d.p.m.port(d.p.t, probe.Port), probe.Path))
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// await waits until the pod is ready, and then as long as Kubernetes does before it goes on.
func (d *pod) await() {
	d.p.t.Helper()
	for deadline := time.Now().Add(startLimit); !d.ready(); time.Sleep(probeInterval) {
		if time.Now().After(deadline) {
			d.p.t.Fatalf("%s is not ready:\n%s", d.name, &d.log)
		}
	}
	for range d.p.m.set.Spec.MinReadySeconds { // as a rollout does
		time.Sleep(time.Second)
		if !d.ready() {
			d.p.t.Fatalf("%s was ready, and no longer is:\n%s", d.name, &d.log)
		}
	}
}

// rollout replaces one pod after another, from the last to the first.
func (p *platform) rollout() {
	p.t.Helper()
	for _, d := range slices.Backward(p.pods) {
		d.restart()
		d.await()
	}
}

// exec runs the program in a pod, and returns what it prints.
func (d *pod) exec(args ...string) string {
	d.p.t.Helper()
	out, err := d.command(append([]string{"/leasekeeper"}, args...)...).CombinedOutput()
	if err != nil {
		d.p.t.Fatalf("leasekeeper %s in %s: %v: %s", strings.Join(args, " "), d.name, err, out)
	}
	return string(out)
}

// certificates returns the files of the Secret: one certificate for all hosts, its key, and its authority.
func certificates(t testing.TB, hosts []string) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "members"}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	return map[string][]byte{
		"peer.pem": certificate, "ca.pem": certificate,
		"peer.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}
