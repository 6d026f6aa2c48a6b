package etcd

import (
	"context"
	"errors"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// errCompacted says that etcd has forgotten the revisions from which on was to be watched.
var errCompacted = errors.New("the revision to watch from has been compacted")

// watching is what comes on a watch stream.
type watching struct {
	creates []*pb.WatchCreateRequest
	// handle takes each answer that brings events, and ends the stream when it says so.
	handle func(*pb.WatchResponse) (done bool)
}

// watch opens a stream and returns nil when it has been handled to its end; otherwise why it broke.
func (b *Backend) watchKeys(ctx context.Context, what watching) error {
	w, number := b.endpoints.Endpoint()
	token, err := b.watchToken(ctx, w)
	if err == nil {
		err = b.watchOn(outgoing(ctx, token), w, what)
	}
	switch {
	case err == nil || errors.Is(err, errCompacted) || ctx.Err() != nil:
	case b.user.refused(err, token):
	default:
		b.endpoints.Leave(number)
	}
	return err
}

// watchToken returns the token to watch with. It does not wait for it as long as the watch may last.
func (b *Backend) watchToken(ctx context.Context, w *endpoint) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.endpoints.Patience())
	defer cancel()
	return b.user.token(ctx, w)
}

func (b *Backend) watchOn(ctx context.Context, w *endpoint, what watching) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Once the watchers stand, silence is normal, and gRPC looks whether the member is there.
	timer := time.AfterFunc(b.endpoints.Patience(), func() { cancel(endpoints.ErrStalled) })
	defer timer.Stop()
	s, err := w.watch.Watch(ctx)
	if err != nil {
		return because(ctx, err)
	}
	for _, create := range what.creates {
		// What is wrong with sending, receiving says.
		_ = s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	}
	for standing := 0; ; {
		resp, err := s.Recv()
		if err != nil {
			return because(ctx, err)
		}
		if resp.CompactRevision != 0 {
			return errCompacted
		}
		if resp.Canceled {
			return refusedWatch(resp.CancelReason)
		}
		if resp.Created {
			if standing++; standing == len(what.creates) {
				timer.Stop()
			}
		}
		if len(resp.Events) > 0 && what.handle(resp) {
			return nil
		}
	}
}

// refusedWatch turns the reason for which etcd ended a watcher into an error as other requests get it.
func refusedWatch(reason string) error {
	for _, known := range []error{
		rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCPermissionDenied,
	} {
		// It may be the text of the status, or that of its message.
		if reason == known.Error() || reason == status.Convert(known).Message() {
			return known
		}
	}
	return status.Error(codes.Unavailable, "etcd ended the watch: "+reason)
}

// because says what was behind the error of a stream.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), endpoints.ErrStalled) {
		return endpoints.ErrStalled
	}
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the stream was ended before all was answered")
	}
	return err
}

// retriable returns the error of a watch. An error that calls for another token is none that ends the watch.
func (b *Backend) retriable(err error) error {
	if b.user.needsToken(err) {
		return status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return err
}
