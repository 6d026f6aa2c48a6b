package patroni

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/steps"
)

const (
	patroniProgram    = "/usr/bin/patroni"
	patronictlProgram = "/usr/bin/patronictl"
	scope             = "demo"
	password          = "secret"
)

// postgresFolder returns the directory with the programs of the newest PostgreSQL that Debian's packages have installed.
func postgresFolder() string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(folders) == 0 {
		return "/usr/lib/postgresql/*/bin"
	}
	return folders[len(folders)-1]
}

// node is one Patroni with its PostgreSQL.
type node struct {
	t        *testing.T
	name     string
	config   string // path
	log      string // path; all runs of Patroni append to it
	data     string // the data directory of PostgreSQL
	postgres string // address
	process  *exec.Cmd
	exited   chan struct{} // closed when process was waited for
}

// newNode writes the configuration of a node that knows all members of the cluster. With secrets it speaks TLS and logs in.
func newNode(t *testing.T, dir, name string, endpoints []string, secrets *cluster.Secrets) *node {
	t.Helper()
	n := &node{
		t: t, name: name,
		config: filepath.Join(dir, name+".yml"), log: filepath.Join(dir, name+".log"), data: filepath.Join(dir, name),
		postgres: cluster.Address(t),
	}
	rest := cluster.Address(t)
	text := fmt.Sprintf(`scope: %[1]s
name: %[2]s
restapi: {listen: %[3]s, connect_address: %[3]s}
%[4]sbootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 9
    maximum_lag_on_failover: 104857600
    postgresql:
      use_pg_rewind: true
      parameters: {wal_log_hints: "on", max_connections: 30, shared_buffers: 16MB, wal_keep_size: 256MB}
  initdb: [{encoding: UTF8}, {locale: C}, data-checksums]
postgresql:
  listen: %[5]s
  connect_address: %[5]s
  data_dir: %[6]s
  bin_dir: %[7]s
  pgpass: %[6]s.pgpass
  parameters: {unix_socket_directories: %[8]s}
  pg_hba: [host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust]
  authentication:
    superuser: {username: postgres, password: %[9]s}
    replication: {username: replicator, password: %[9]s}
    rewind: {username: postgres, password: %[9]s}
`, scope, name, rest, etcd3Section(t, endpoints, secrets), n.postgres, n.data, postgresFolder(), dir, password)
	if err := os.WriteFile(n.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return n
}

// etcd3Section returns the section etcd3 of a configuration as the page has it, with other addresses, files and another user.
// Without secrets it ends before what TLS and users need.
func etcd3Section(t *testing.T, endpoints []string, secrets *cluster.Secrets) string {
	t.Helper()
	text := steps.Read(t, patroniPage, "Patroni").Block("protocol: https")
	replace := func(old, with string) {
		if strings.Count(text, old) != 1 {
			t.Fatalf("the section etcd3 of the page does not have %q once:\n%s", old, text)
		}
		text = strings.Replace(text, old, with, 1)
	}
	replace("[10.0.0.1:2379, 10.0.0.2:2379, 10.0.0.3:2379]", "["+strings.Join(endpoints, ", ")+"]")
	if secrets == nil {
		text, _, _ = strings.Cut(text, "  protocol: https\n")
		return text
	}
	replace("/etc/patroni/ca.pem", secrets.CA)
	replace("/etc/patroni/patroni.pem", secrets.Cert)
	replace("/etc/patroni/patroni.key", secrets.Key)
	replace("username: patroni\n", "username: "+cluster.User+"\n")
	replace("password: of-patroni\n", "password: "+cluster.Password+"\n")
	return text
}

// newDirectory returns a directory of the user postgres. Its path is short, because sockets are in it.
func newDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "patroni-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if c := postgresUser(t); c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// postgresUser returns the user under which programs run, or nil if that is the user of the test.
func postgresUser(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// command makes a command that runs as the user postgres.
func (n *node) command(program string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(program, arguments...)
	cmd.Dir = filepath.Dir(n.data)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: postgresUser(n.t)}
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + cmd.Dir, "LC_ALL=C.UTF-8"}
	return cmd
}

// start starts Patroni, which starts PostgreSQL.
func (n *node) start() {
	n.t.Helper()
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	cmd := n.command(patroniProgram, n.config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	n.process, n.exited = cmd, exited
}

// kill ends Patroni and PostgreSQL at once, as if the machine had failed.
func (n *node) kill() {
	if n.process == nil {
		return
	}
	syscall.Kill(-n.process.Process.Pid, syscall.SIGKILL)
	<-n.exited
	n.process = nil
	text, err := os.ReadFile(filepath.Join(n.data, "postmaster.pid"))
	if err != nil {
		return // PostgreSQL does not run
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if pid, err := strconv.Atoi(string(line)); err == nil && pid > 1 {
		syscall.Kill(-pid, syscall.SIGKILL) // the postmaster leads a session of its own
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// logged returns the lines of Patroni's log that contain the text, from an offset in the log on.
func (n *node) logged(offset int64, text string) []string {
	n.t.Helper()
	data, err := os.ReadFile(n.log)
	if err != nil {
		n.t.Fatal(err)
	}
	var found []string
	for line := range strings.SplitSeq(string(data[offset:]), "\n") {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// logSize returns the present length of Patroni's log in bytes.
func (n *node) logSize() int64 {
	n.t.Helper()
	info, err := os.Stat(n.log)
	if err != nil {
		n.t.Fatal(err)
	}
	return info.Size()
}

func (n *node) showLog() {
	data, err := os.ReadFile(n.log)
	if err != nil {
		n.t.Log(err)
		return
	}
	const most = 12 << 10
	n.t.Logf("log of Patroni at %s:\n%s", n.name, data[max(0, len(data)-most):])
}
