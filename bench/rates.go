package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// longTTL, in seconds, is of leases that shall not end while they are measured.
	longTTL = 24 * 60 * 60
	// rateConnections carry a rate. More of them make client and server do more system calls for the same
	// load, fewer make one goroutine on either side write everything.
	rateConnections = 8

	// keys is how many keys are written and read, and valueBytes how large their values are.
	keys       = 10_000
	valueBytes = 100

	pingPongStreams = 64
	// pipelineStreams keep so many renewals each under way.
	pipelineStreams = 8
	pipelineDepth   = 256
	// renewed is how many leases are renewed, each by one stream only.
	renewed = 8192
)

// closedLoop measures how often per second so many workers, which each wait for their answer before they
// ask again, are answered.
func closedLoop(ctx context.Context, s *server, z size, workers int, goal string,
	ask func(ctx context.Context, conn *grpc.ClientConn, random *rand.Rand) error) ([]figure, error) {
	conns, err := dial(s.addr, rateConnections)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	return rate(ctx, s, z, workers, goal, func(ctx context.Context, worker int, count *atomic.Int64) error {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		for {
			if err := ask(ctx, conns.of(worker), random); err != nil {
				return err
			}
			count.Add(1)
		}
	})
}

func grants(inFlight int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		return closedLoop(ctx, s, z, inFlight, goal, func(ctx context.Context, conn *grpc.ClientConn, _ *rand.Rand) error {
			_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: longTTL})
			return err
		})
	}
}

func plainKey(i int) []byte { return fmt.Appendf(nil, "key/%08d", i) }

var value = bytes.Repeat([]byte{'v'}, valueBytes)

func put(ctx context.Context, conn *grpc.ClientConn, i int) error {
	_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: plainKey(i), Value: value})
	return err
}

func puts(inFlight int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		return closedLoop(ctx, s, z, inFlight, goal, func(ctx context.Context, conn *grpc.ClientConn, random *rand.Rand) error {
			return put(ctx, conn, random.IntN(keys))
		})
	}
}

func gets(inFlight int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		conns, err := dial(s.addr, rateConnections)
		if err != nil {
			return nil, err
		}
		err = each(ctx, conns, prepareInFlight, keys, put)
		conns.close()
		if err != nil {
			return nil, err
		}
		return closedLoop(ctx, s, z, inFlight, goal, func(ctx context.Context, conn *grpc.ClientConn, random *rand.Rand) error {
			r, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: plainKey(random.IntN(keys))})
			if err == nil && len(r.Kvs) != 1 {
				err = fmt.Errorf("a get found %d keys", len(r.Kvs))
			}
			return err
		})
	}
}

// renewals is one stream that renews leases of its own.
type renewals struct {
	pb.Lease_LeaseKeepAliveClient
	end   context.CancelFunc // of the stream
	ids   []int64
	count *atomic.Int64 // of answers
}

func (r *renewals) send(i int) error {
	return r.Send(&pb.LeaseKeepAliveRequest{ID: r.ids[i%len(r.ids)]})
}

func (r *renewals) receive() error {
	answer, err := r.Recv()
	if err != nil {
		return err
	}
	if answer.TTL <= 0 {
		return fmt.Errorf("lease %x could not be renewed", answer.ID)
	}
	r.count.Add(1)
	return nil
}

// renewing grants leases and measures how many renewals per second are answered on so many streams.
func renewing(ctx context.Context, s *server, z size, streams int, goal string, work func(r *renewals) error) ([]figure, error) {
	conns, err := dial(s.addr, rateConnections)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	if err := grantNumbered(ctx, conns, prepareInFlight, 0, renewed); err != nil {
		return nil, err
	}
	numbers := make([]int, renewed)
	for i := range numbers {
		numbers[i] = i
	}
	return renewingThose(ctx, s, z, conns, numbers, streams, goal, work)
}

// renewingThose measures it for leases that are there, given by their numbers, each of one stream only.
func renewingThose(ctx context.Context, s *server, z size, conns connections, numbers []int, streams int, goal string,
	work func(r *renewals) error) ([]figure, error) {
	return rate(ctx, s, z, streams, goal, func(ctx context.Context, worker int, count *atomic.Int64) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		stream, err := pb.NewLeaseClient(conns.of(worker)).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		var ids []int64
		for i := worker; i < len(numbers); i += streams {
			ids = append(ids, firstLease+int64(numbers[i]))
		}
		return work(&renewals{stream, end, ids, count})
	})
}

// renewalsPingPong has each stream wait for an answer before it sends again.
func renewalsPingPong(ctx context.Context, s *server, z size) ([]figure, error) {
	return renewing(ctx, s, z, pingPongStreams, "", func(r *renewals) error {
		for i := 0; ; i++ {
			if err := r.send(i); err != nil {
				return err
			}
			if err := r.receive(); err != nil {
				return err
			}
		}
	})
}

func renewalsPipelined(ctx context.Context, s *server, z size) ([]figure, error) {
	return renewing(ctx, s, z, pipelineStreams, "180 000", pipelined)
}

// pipelined keeps a stream full, one id a message.
func pipelined(r *renewals) error {
	window := make(chan struct{}, pipelineDepth) // holds one for each renewal under way
	sent := make(chan error, 1)
	go func() { sent <- r.fill(window) }()
	for {
		if err := r.receive(); err != nil {
			r.end()
			return errors.Join(err, <-sent)
		}
		<-window
	}
}

// fill sends whenever there is room in the window, until the stream ends.
func (r *renewals) fill(window chan<- struct{}) error {
	for i := 0; ; i++ {
		select {
		case window <- struct{}{}:
		case <-r.Context().Done():
			return nil
		}
		if err := r.send(i); err != nil {
			return err
		}
	}
}
