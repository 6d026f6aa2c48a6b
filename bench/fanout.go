package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fanOutKey is the key that all watchers watch.
const fanOutKey = "watched"

// watchFanOut measures how many events a second reach watchers of one key, which is put again when all have the event of
// the put before. The watchers share as many streams as there are connections.
func watchFanOut(watchers int) measured {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		conns, err := dial(s.addr, rateConnections)
		if err != nil {
			return nil, err
		}
		defer conns.close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		streams := make([]pb.Watch_WatchClient, rateConnections)
		for i := range streams {
			if streams[i], err = watchOften(ctx, conns, i, watchers/len(streams)); err != nil {
				return nil, err
			}
		}
		received, failed := make(chan struct{}, len(streams)), make(chan error, len(streams))
		for _, stream := range streams {
			go func() { failed <- receiveTogether(stream, watchers/len(streams), received) }()
		}
		return rate(ctx, s, z, 1, "", func(ctx context.Context, _ int, count *atomic.Int64) error {
			for {
				if _, err := pb.NewKVClient(conns[0]).Put(ctx, &pb.PutRequest{Key: []byte(fanOutKey), Value: value}); err != nil {
					return err
				}
				for range streams {
					select {
					case <-received:
					case err := <-failed:
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				count.Add(int64(watchers))
			}
		})
	}
}

// watchOften opens a stream with a number of watchers, and returns when the server has confirmed all of them.
func watchOften(ctx context.Context, conns connections, worker, watchers int) (pb.Watch_WatchClient, error) {
	stream, err := pb.NewWatchClient(conns.of(worker)).Watch(ctx)
	if err != nil {
		return nil, err
	}
	for range watchers {
		create := &pb.WatchCreateRequest{Key: []byte(fanOutKey)}
		if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
			return nil, err
		}
		r, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if !r.Created || r.Canceled {
			return nil, fmt.Errorf("the watcher was refused: %s", r.CancelReason)
		}
	}
	return stream, nil
}

// receiveTogether reports each time that all watchers of a stream have received an event. It returns when the stream
// ends.
func receiveTogether(stream pb.Watch_WatchClient, watchers int, received chan<- struct{}) error {
	for events := 0; ; {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.Canceled {
			return errors.New("a watcher was cancelled: " + r.CancelReason)
		}
		for events += len(r.Events); events >= watchers; events -= watchers {
			select {
			case received <- struct{}{}:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	}
}
