package patroni

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/steps"
)

const (
	patroniPage    = "../../../docs/how-to/patroni.md"
	operationsPage = "../../../docs/operations.md"
)

// Patroni moves from etcd by the commands of docs/how-to/patroni.md, and of docs/operations.md for the server. PostgreSQL runs
// on, and no write fails. At the end the server has grown to three members, and Patroni works on.
func TestPatroniMovesFromEtcd(t *testing.T) {
	needAll(t)
	t.Parallel()
	cluster.Need(t, "patroni", patroniProgram, patronictlProgram, postgresFolder()+"/initdb")
	etcd := cluster.Start(t, cluster.Etcd, 1)
	s := startScenario(t, etcd, nil)
	page, addr := steps.Read(t, patroniPage, "Move from etcd"), etcd.Endpoints()[0]
	m := steps.NewMove(t, operationsPage, addr, addr)
	s.shell(page.Command("patronictl -c /etc/patroni/one.yml pause "))
	for _, n := range s.nodes {
		n.stopPatroni()
	}
	m.Save()
	etcd.End()
	m.Import()
	m.Serve()
	for _, n := range s.nodes {
		n.start()
	}
	s.progress()
	s.shell(page.Command("patronictl -c /etc/patroni/one.yml resume "))
	s.progress()
	m.Grow()
	s.progress()
	if err := errors.Join(isPrimary(s.nodes[0], 1), hasStandby(s.nodes[0])); err != nil {
		t.Error(err)
	}
	if rows, failures := s.writer.count(); len(failures) > 0 {
		t.Errorf("of %d rows these were not written: %s", rows, failures)
	}
	s.switchOver()
}

// shell runs a command of the page, and returns what it prints.
func (s *scenario) shell(line string) string {
	s.t.Helper()
	line = strings.ReplaceAll(line, "/etc/patroni/one.yml", s.nodes[0].config)
	out, err := s.nodes[0].command("sh", "-eu", "-c", line).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// stopPatroni ends Patroni. PostgreSQL runs on if Patroni is paused.
func (n *node) stopPatroni() {
	n.t.Helper()
	n.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.exited:
		n.process = nil
	case <-time.After(waitLimit):
		n.t.Fatalf("Patroni at %s does not end", n.name)
	}
}
