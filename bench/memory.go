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

// memoryWarm is how many leases are granted before the first measurement, so that one-time costs of a server, for
// connections and buffers, is there already.
const memoryWarm = 2_000

// grantBare grants a lease.
func grantBare(ctx context.Context, conn *grpc.ClientConn, i int) error {
	_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: firstLease + int64(i), TTL: longTTL})
	return err
}

// grantWithKey grants a lease and attaches a key.
func grantWithKey(ctx context.Context, conn *grpc.ClientConn, i int) error {
	if err := grantBare(ctx, conn, i); err != nil {
		return err
	}
	return attach(ctx, conn, i, firstLease+int64(i))
}

// footprint is the memory of a server with a number of leases.
type footprint struct {
	resident residentSize
	live     float64 // bytes of heap after a collection
}

// memory measures by how much a server grows for every lease that it keeps. What the process has mapped of
// its files counts in the first figure and not in the others.
func memory(leases int, grant func(ctx context.Context, conn *grpc.ClientConn, i int) error,
	goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		conns, err := dial(s.addr, rateConnections)
		if err != nil {
			return nil, err
		}
		defer conns.close()
		look := func(from, to int) (f footprint, err error) {
			err = each(ctx, conns, 64, to-from, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
				return grant(ctx, conn, from+i)
			})
			if err != nil {
				return f, err
			}
			pause(ctx, z.settle)
			if f.resident, err = resident(s.cmd.Process.Pid); err != nil {
				return f, err
			}
			f.live, err = liveHeap(ctx, s, conns)
			return f, err
		}
		before, err := look(0, memoryWarm)
		if err != nil {
			return nil, err
		}
		after, err := look(memoryWarm, memoryWarm+leases)
		if err != nil {
			return nil, err
		}
		bytes := func(name string, grown float64, goal string) figure {
			return figure{name: name, unit: "B", value: grown / float64(leases), goal: goal}
		}
		return []figure{
			bytes("RSS growth per lease", float64(after.resident.all-before.resident.all), goal),
			bytes("of it not of files", float64(after.resident.anonymous-before.resident.anonymous), ""),
			bytes("growth of the live heap per lease", after.live-before.live, ""),
		}, nil
	}
}

// residentSize is the resident set of a process, in bytes.
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
