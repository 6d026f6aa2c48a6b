package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// memoryWarm is how many leases are granted before the first look, so that what a server needs once, for
// connections and buffers, is there already.
const memoryWarm = 2_000

// memory measures by how much a server grows for every lease that it keeps. What the process has mapped of
// its files counts in the first figure and not in the second.
func memory(ctx context.Context, s *server, z size) ([]figure, error) {
	conns, err := dial(s.addr, rateConnections)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	grant := func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
		_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: longTTL})
		return err
	}
	look := func(leases int) (residentSize, error) {
		if err := each(ctx, conns, 64, leases, grant); err != nil {
			return residentSize{}, err
		}
		pause(ctx, z.settle)
		return resident(s.cmd.Process.Pid)
	}
	before, err := look(memoryWarm)
	if err != nil {
		return nil, err
	}
	after, err := look(z.held)
	if err != nil {
		return nil, err
	}
	perLease := func(grown int64) float64 { return float64(grown) / float64(z.held) }
	return []figure{
		{name: "RSS growth per lease", unit: "B", value: perLease(after.all - before.all), goal: "250"},
		{name: "of it not of files", unit: "B", value: perLease(after.anonymous - before.anonymous)},
	}, nil
}

// residentSize is what a process has in memory, in bytes.
type residentSize struct{ all, anonymous int64 }

func resident(pid int) (residentSize, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return residentSize{}, fmt.Errorf("memory is measured on Linux only: %w", err)
	}
	var r residentSize
	if r.all, err = statusBytes(string(text), "VmRSS"); err != nil {
		return r, err
	}
	r.anonymous, err = statusBytes(string(text), "RssAnon")
	return r, err
}

// statusBytes finds a field of /proc/PID/status, which are in kB.
func statusBytes(text, field string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kB, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kB << 10, err
		}
	}
	return 0, fmt.Errorf("/proc tells no %s", field)
}
