package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// fairAttacks are attacks on the turns of others: they ask for much work, and the neighbour's times are their measure.
func fairAttacks() []attack {
	return []attack{
		{name: "rapid resets", prepare: fillKeys, flood: resetRapidly},
		{name: "watches created and cancelled", prepare: fillHistory, flood: watchFromTheStart},
		{name: "2000 puts of 100 KB", flood: putLarge},
		{name: "fan-out to slow watchers", flood: fanOut},
		{name: "stalled large reads", prepare: fillKeys, flood: stallAnswers},
	}
}

const (
	// resetsTogether are the requests that are opened and reset before the connection is flushed.
	resetsTogether = 64
	// historyRevisions is how many revisions a watch from revision 1 has to read.
	historyRevisions = 20_000
	// watchStreams create and cancel watches at the same time.
	watchStreams = 32
	// largePuts of filledBytes each are under way at once.
	largePuts = 2000
	// slowWatchers receive every put and read none.
	slowWatchers = 1000
)

// resetRapidly opens reads and resets each at once.
func resetRapidly(ctx context.Context, addr string) ([]figure, error) {
	var resets atomic.Int64
	done := onRaw(ctx, addr, 8, wireWindow, func(ctx context.Context, r *raw) error {
		for ctx.Err() == nil {
			for range resetsTogether {
				stream, err := r.ask(pb.KV_Range_FullMethodName, allFilled())
				if err == nil {
					err = r.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
				}
				if err != nil {
					return err
				}
				resets.Add(1)
			}
			if err := r.flush(); err != nil {
				return err
			}
		}
		return nil
	})
	return append(done, figure{name: "requests that the attacker reset", value: float64(resets.Load())}), nil
}

// fillHistory puts one key many times.
func fillHistory(ctx context.Context, addr string) error {
	conns, err := dial(addr, 1)
	if err != nil {
		return err
	}
	defer conns.close()
	return each(ctx, conns, 64, historyRevisions, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "history/%03d", i%100), Value: make([]byte, valueBytes)})
		return err
	})
}

// watchFromTheStart creates watches from revision 1, and cancels each as soon as it is there.
func watchFromTheStart(ctx context.Context, addr string) ([]figure, error) {
	conns, err := dialFrom(attackerAddress, addr, 4)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	var created atomic.Int64
	repeat(ctx, watchStreams, func(ctx context.Context, worker int) {
		stream, err := pb.NewWatchClient(conns[worker%len(conns)]).Watch(ctx)
		for err == nil {
			err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
				CreateRequest: &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: 1, PrevKv: true}}})
			var answer *pb.WatchResponse
			for err == nil && !answer.GetCreated() {
				answer, err = stream.Recv()
			}
			if err == nil {
				created.Add(1)
				err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
					CancelRequest: &pb.WatchCancelRequest{WatchId: answer.WatchId}}})
			}
		}
		pause(ctx, 10*time.Millisecond)
	})
	return []figure{{name: "watches created", value: float64(created.Load())}}, nil
}

// putLarge keeps large puts under way, each of a key of its own.
func putLarge(ctx context.Context, addr string) ([]figure, error) {
	conns, err := dialFrom(attackerAddress, addr, 8)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	var o outcomes
	repeat(ctx, largePuts, func(ctx context.Context, worker int) {
		_, err := pb.NewKVClient(conns[worker%len(conns)]).Put(ctx, &pb.PutRequest{Key: filledKey(worker), Value: make([]byte, filledBytes)})
		if ctx.Err() == nil {
			o.count(err)
		}
	})
	return o.figures(), nil
}

// fanOut puts a key that has many watchers. None of them reads what the server sends it.
func fanOut(ctx context.Context, addr string) ([]figure, error) {
	conns, err := dialFrom(attackerAddress, addr, 8)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	for i := range slowWatchers {
		stream, err := pb.NewWatchClient(conns[i%len(conns)]).Watch(ctx)
		if err == nil {
			err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
				CreateRequest: &pb.WatchCreateRequest{Key: []byte("fan")}}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			return nil, fmt.Errorf("watcher %d: %w", i, err)
		}
	}
	var o outcomes
	repeat(ctx, 16, func(ctx context.Context, _ int) {
		_, err := pb.NewKVClient(conns[0]).Put(ctx, &pb.PutRequest{Key: []byte("fan"), Value: make([]byte, 10<<10)})
		if ctx.Err() == nil {
			o.count(err)
		}
	})
	return o.figures(), nil
}
