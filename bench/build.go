package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A target is something to measure.
type target struct {
	name string
	pkg  string // its package main, as seen from source
	// source is the directory of the module that it is built in.
	source string
	// arguments returns the arguments for a data directory and an address for clients; peer is a second address, for
	// targets that require one.
	arguments func(dir, addr, peer string) []string
	// joined starts it as one of several members; nil if it cannot be one.
	joined func(m seat) []string
	// metrics returns the URL of its metrics for those addresses; nil if it has none.
	metrics func(addr, peer string) string
	// bare says that it only answers: there is nothing to expire, to watch or to grow.
	bare bool
	// synced says that it answers grants and puts only once a log is synced; it is measured with nothing else.
	synced bool
	// files is the most descriptors that it may have; 0 leaves it at what this process may have.
	files int

	binary string // once it is built
}

// reference is the target that the others are compared with.
const reference = "etcd"

func targets() []*target {
	return []*target{
		{name: reference, source: "reference", pkg: "go.etcd.io/etcd/server/v3", arguments: etcdArguments, joined: etcdMember,
			metrics: func(addr, _ string) string { return "http://" + addr + "/metrics" }},
		{name: "leasekeeper", source: "..", pkg: "./cmd/leasekeeper", arguments: leasekeeperArguments, joined: leasekeeperMember,
			metrics: func(_, http string) string { return "http://" + http + "/metrics" }},
		{name: "bare gRPC", source: ".", pkg: "./bare", bare: true,
			arguments: func(_, addr, _ string) []string { return []string{addr} }},
		{name: "gRPC and sync", source: ".", pkg: "./bare", bare: true, synced: true,
			arguments: func(dir, addr, _ string) []string { return []string{addr, dir + ".log"} }},
	}
}

func leasekeeperArguments(dir, addr, http string) []string {
	return []string{"serve", "--data-dir", dir, "--listen", addr, "--http", http, "--log-level", "warn"}
}

func etcdArguments(dir, addr, peer string) []string {
	client, peer := "http://"+addr, "http://"+peer
	return []string{
		"--name", "one", "--data-dir", dir, "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "one=" + peer,
	}
}

// build builds the targets that have no binary yet, as they are released: without cgo.
func build(ctx context.Context, dir string, list []*target, say progress) error {
	for i, t := range list {
		if t.binary != "" {
			continue
		}
		say.line("building %s", t.name)
		t.binary = filepath.Join(dir, fmt.Sprintf("target-%d", i))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", t.binary, t.pkg)
		cmd.Dir = t.source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", t.name, err, out)
		}
	}
	return nil
}
