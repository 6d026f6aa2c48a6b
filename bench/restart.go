package main

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// manyInFlight is used to grant very many leases outside of measurements.
	manyInFlight = 512
	// restartLimit bounds how long a target with very many leases may take until it answers.
	restartLimit = 2 * time.Minute
)

// grantNumbered grants bare leases whose ids are firstLease and on, from the number from up to, without, to.
func grantNumbered(ctx context.Context, conns connections, inFlight, from, to int) error {
	return each(ctx, conns, inFlight, to-from, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
		id := firstLease + int64(from+i)
		_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: longTTL})
		return err
	})
}

// startUp kills a server that keeps very many leases, and measures how long it takes from when it is started
// again until it answers.
func startUp(ctx context.Context, s *server, z size) ([]figure, error) {
	conns, err := dial(s.addr, rateConnections)
	if err != nil {
		return nil, err
	}
	err = grantNumbered(ctx, conns, manyInFlight, 0, z.kept)
	conns.close()
	if err != nil {
		return nil, err
	}
	pause(ctx, z.settle)
	s.kill()
	start := time.Now()
	if err := s.launch(); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx, restartLimit); err != nil {
		return nil, err
	}
	read := time.Since(start)
	if err := renewOne(ctx, s, firstLease+int64(z.kept)-1); err != nil {
		return nil, err
	}
	renewed := time.Since(start)
	return []figure{
		{name: "until a linearizable get is answered", unit: "ms", value: milliseconds(read)},
		{name: "until a renewal is answered too", unit: "ms", value: milliseconds(renewed)},
	}, nil
}

// renewOne renews a lease, which must be there.
func renewOne(ctx context.Context, s *server, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	conns, err := dial(s.addr, 1)
	if err != nil {
		return err
	}
	defer conns.close()
	stream, err := pb.NewLeaseClient(conns[0]).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	if answer.TTL <= 0 {
		return fmt.Errorf("lease %x is gone after the restart", id)
	}
	return nil
}
