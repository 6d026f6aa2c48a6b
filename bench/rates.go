package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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
	// pipelineStreams streams each keep a number of renewals under way.
	pipelineStreams = 8
	pipelineDepth   = 256
	// renewed is how many leases are renewed, each by one stream only.
	renewed = 8192
)

// closedLoop measures how many requests are answered per second while a fixed number is under way.
func closedLoop(ctx context.Context, s *server, z size, inFlight int, goal, method string,
	ask func(buf []byte, random *rand.Rand) []byte, check func(message []byte) error) ([]figure, error) {
	wires := min(inFlight, rateConnections)
	return rate(ctx, s, z, wires, goal, func(ctx context.Context, worker int, count *atomic.Int64) error {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		return drive(ctx, s.addr, &load{
			method:  method,
			token:   s.token,
			slots:   inFlight / wires,
			ask:     func(_ int, buf []byte) []byte { return ask(buf, random) },
			answer:  func(_ int, message []byte) error { return check(message) },
			counted: func() { count.Add(1) },
		})
	})
}

// marshal appends a message. What is measured has no messages that cannot be.
func marshal(buf []byte, m proto.Message) []byte {
	buf, err := proto.MarshalOptions{}.MarshalAppend(buf, m)
	if err != nil {
		panic(fmt.Sprintf("bench: marshalling %v: %v", m, err))
	}
	return buf
}

// holds returns an error unless a message has a field, by its number, other than zero.
func holds(message []byte, number protowire.Number) error {
	for rest := message; len(rest) > 0; {
		n, kind, size := protowire.ConsumeTag(rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		rest = rest[size:]
		if n == number && kind == protowire.VarintType {
			if v, _ := protowire.ConsumeVarint(rest); v != 0 {
				return nil
			}
			break
		}
		if size = protowire.ConsumeFieldValue(n, kind, rest); size < 0 {
			return protowire.ParseError(size)
		}
		rest = rest[size:]
	}
	return fmt.Errorf("an answer lacks its field %d: % x", number, message)
}

// Numbers of fields by which answers are known to be right.
const (
	grantedID  = 2 // of a LeaseGrantResponse
	rangeCount = 4 // of a RangeResponse
	renewedTTL = 3 // of a LeaseKeepAliveResponse
)

func grants(inFlight int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		return closedLoop(ctx, s, z, inFlight, goal, pb.Lease_LeaseGrant_FullMethodName,
			func(buf []byte, _ *rand.Rand) []byte { return marshal(buf, &pb.LeaseGrantRequest{TTL: longTTL}) },
			func(message []byte) error { return holds(message, grantedID) })
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
		return closedLoop(ctx, s, z, inFlight, goal, pb.KV_Put_FullMethodName,
			func(buf []byte, random *rand.Rand) []byte {
				return marshal(buf, &pb.PutRequest{Key: plainKey(random.IntN(keys)), Value: value})
			},
			func([]byte) error { return nil })
	}
}

// putKeys puts the keys that are read.
func putKeys(ctx context.Context, s *server, n int) error {
	conns, err := s.dial(rateConnections)
	if err != nil {
		return err
	}
	defer conns.close()
	return each(ctx, conns, prepareInFlight, n, put)
}

func gets(inFlight int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		if err := putKeys(ctx, s, keys); err != nil {
			return nil, err
		}
		return closedLoop(ctx, s, z, inFlight, goal, pb.KV_Range_FullMethodName,
			func(buf []byte, random *rand.Rand) []byte {
				return marshal(buf, &pb.RangeRequest{Key: plainKey(random.IntN(keys))})
			},
			func(message []byte) error { return holds(message, rangeCount) })
	}
}

// renewing grants leases and measures how many renewals per second are answered on a number of streams.
func renewing(ctx context.Context, s *server, z size, streams, depth int, goal string) ([]figure, error) {
	if err := grantRenewed(ctx, s); err != nil {
		return nil, err
	}
	return renewingGranted(ctx, s, z, streams, depth, goal)
}

// grantRenewed grants the leases that are renewed.
func grantRenewed(ctx context.Context, s *server) error {
	conns, err := s.dial(rateConnections)
	if err != nil {
		return err
	}
	defer conns.close()
	return grantNumbered(ctx, conns, prepareInFlight, 0, renewed)
}

// renewingGranted is renewing when they are granted.
func renewingGranted(ctx context.Context, s *server, z size, streams, depth int, goal string) ([]figure, error) {
	numbers := make([]int, renewed)
	for i := range numbers {
		numbers[i] = i
	}
	return renewingThose(ctx, s, z, numbers, streams, depth, goal)
}

// renewingThose measures it for leases that are there, given by their numbers, each of one stream only, which
// has a number of renewals under way.
func renewingThose(ctx context.Context, s *server, z size, numbers []int, streams, depth int, goal string) ([]figure, error) {
	wires := min(streams, rateConnections)
	return rate(ctx, s, z, wires, goal, func(ctx context.Context, worker int, count *atomic.Int64) error {
		next := make([]int, streams/wires) // number to be renewed next, by stream
		for i := range next {
			next[i] = worker + i*wires
		}
		return drive(ctx, s.addr, &load{
			method: pb.Lease_LeaseKeepAlive_FullMethodName,
			token:  s.token,
			stream: true,
			slots:  len(next),
			depth:  depth,
			ask: func(slot int, buf []byte) []byte {
				n := next[slot]
				if next[slot] += streams; next[slot] >= len(numbers) {
					next[slot] = worker + slot*wires
				}
				return marshal(buf, &pb.LeaseKeepAliveRequest{ID: firstLease + int64(numbers[n])})
			},
			answer:  func(_ int, message []byte) error { return holds(message, renewedTTL) },
			counted: func() { count.Add(1) },
		})
	})
}

// renewalsPingPong has each stream wait for an answer before it sends again.
func renewalsPingPong(ctx context.Context, s *server, z size) ([]figure, error) {
	return renewing(ctx, s, z, pingPongStreams, 1, "")
}

// renewalsPipelined keeps streams full, one id a message.
func renewalsPipelined(ctx context.Context, s *server, z size) ([]figure, error) {
	return renewing(ctx, s, z, pipelineStreams, pipelineDepth, "180 000")
}
