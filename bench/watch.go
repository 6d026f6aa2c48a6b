package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// keyPrefix is that of the keys which are attached to leases; the number of the lease follows.
const keyPrefix = "lease/"

func leaseKey(i int) []byte { return []byte(keyPrefix + strconv.Itoa(i)) }

// gone is a batch of deleted keys with the time when this process received it, or the error that ended the watch.
type gone struct {
	at   time.Time
	keys []int
	err  error
}

// watchDeletes reports every deletion of a leaseKey from now on. The channel holds as many as the caller
// demands, so that a slow reader does not delay the watcher.
func watchDeletes(ctx context.Context, conn *grpc.ClientConn, holds int) (<-chan gone, error) {
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	end := []byte(keyPrefix)
	end[len(end)-1]++
	create := &pb.WatchCreateRequest{
		Key: []byte(keyPrefix), RangeEnd: end, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT},
	}
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
	events := make(chan gone, holds)
	go func() {
		defer close(events)
		for {
			g := receiveDeletes(stream)
			select {
			case events <- g:
			case <-ctx.Done():
				return
			}
			if g.err != nil {
				return
			}
		}
	}()
	return events, nil
}

func receiveDeletes(stream pb.Watch_WatchClient) gone {
	r, err := stream.Recv()
	g := gone{at: time.Now(), err: err}
	if err == nil && r.Canceled {
		g.err = fmt.Errorf("the watcher was cancelled: %s", r.CancelReason)
	}
	for _, event := range r.GetEvents() {
		if event.Type != mvccpb.DELETE {
			continue
		}
		i, err := strconv.Atoi(string(event.Kv.Key[len(keyPrefix):]))
		if err != nil {
			g.err = fmt.Errorf("an event of a key that nobody wrote: %q", event.Kv.Key)
			return g
		}
		g.keys = append(g.keys, i)
	}
	return g
}
