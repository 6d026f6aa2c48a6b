package patroni

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
)

// Patroni moves from etcd by the steps of docs/how-to/patroni.md. PostgreSQL runs on, and no write fails.
func TestPatroniMovesFromEtcd(t *testing.T) {
	needAll(t)
	t.Parallel()
	cluster.Need(t, "patroni", patroniProgram, patronictlProgram, postgresFolder()+"/initdb")
	etcd := cluster.Start(t, cluster.Etcd, 1)
	s := startScenario(t, etcd, nil)
	s.control("pause", scope, "--wait")
	for _, n := range s.nodes {
		n.stopPatroni()
	}
	file := filepath.Join(t.TempDir(), "etcd.snapshot")
	s.saveSnapshot(file)
	etcd.End()
	s.serveSnapshot(file)
	for _, n := range s.nodes {
		n.start()
	}
	s.progress()
	s.control("resume", scope, "--wait")
	s.progress()
	if err := errors.Join(isPrimary(s.nodes[0], 1), hasStandby(s.nodes[0])); err != nil {
		t.Error(err)
	}
	if rows, failures := s.writer.count(); len(failures) > 0 {
		t.Errorf("of %d rows these were not written: %s", rows, failures)
	}
	s.switchOver()
}

// control runs patronictl.
func (s *scenario) control(arguments ...string) {
	s.t.Helper()
	ctl := s.nodes[0].command(patronictlProgram, append([]string{"-c", s.nodes[0].config}, arguments...)...)
	if out, err := ctl.CombinedOutput(); err != nil {
		s.t.Fatalf("patronictl %s: %v\n%s", arguments, err, out)
	}
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

// saveSnapshot saves what etcdctl snapshot save would.
func (s *scenario) saveSnapshot(path string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+s.cluster.Endpoints()[0], grpc.WithTransportCredentials(s.cluster.Credentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	file, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	stream, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
	for err == nil {
		var part *pb.SnapshotResponse
		if part, err = stream.Recv(); err == nil {
			_, err = file.Write(part.Blob)
		}
	}
	if err != io.EOF {
		s.t.Fatal(err)
	}
}

// serveSnapshot imports a snapshot, and serves it at the address at which etcd was.
func (s *scenario) serveSnapshot(file string) {
	s.t.Helper()
	t, addr := s.t, s.cluster.Endpoints()[0]
	dir, program := filepath.Join(t.TempDir(), "data"), cluster.Program(t, cluster.Leasekeeper)
	if out, err := exec.Command(program, "import", "--from-etcd", file, "--data-dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	logs := filepath.Join(t.TempDir(), "log")
	p, err := process.Start(logs, program, "serve", "--data-dir", dir, "--listen", addr, "--http", "off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			process.ShowLog(t, "the server", logs)
		}
	})
	s.eventually("the server listens", func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
}
