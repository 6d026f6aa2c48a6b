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

// errCompacted means that etcd has compacted the revision that the watch began at.
var errCompacted = errors.New("etcd has compacted the revision to watch from")

// watching describes a watch stream.
type watching struct {
	creates []*pb.WatchCreateRequest
	// handle takes each answer with events, and returns true to end the stream.
	handle func(*pb.WatchResponse) (done bool)
}

// watchKeys opens a stream. It returns nil when handle has ended the stream, and otherwise why the stream failed.
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

// watchToken returns the token for a watch. Unlike the watch, it waits no longer than a request.
func (b *Backend) watchToken(ctx context.Context, w *endpoint) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.endpoints.Patience())
	defer cancel()
	return b.user.token(ctx, w)
}

func (b *Backend) watchOn(ctx context.Context, w *endpoint, what watching) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// When the watchers are created, silence is normal, and gRPC checks whether the member is there.
	timer := time.AfterFunc(b.endpoints.Patience(), func() { cancel(endpoints.ErrStalled) })
	defer timer.Stop()
	s, err := w.watch.Watch(ctx)
	if err != nil {
		return because(ctx, err)
	}
	for _, create := range what.creates {
		// If sending fails, receiving returns the reason.
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

// refusedWatch returns the error for the reason with which etcd cancels a watcher.
func refusedWatch(reason string) error {
	for _, known := range []error{
		rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCPermissionDenied,
	} {
		// The reason may be the text of the status, or only its message.
		if reason == known.Error() || reason == status.Convert(known).Message() {
			return known
		}
	}
	return status.Error(codes.Unavailable, "etcd cancelled the watch: "+reason)
}

// because returns the cause of the error of a stream.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), endpoints.ErrStalled) {
		return endpoints.ErrStalled
	}
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "etcd ended the stream before it had answered all requests")
	}
	return err
}

// retriable returns the error of a watch, but not as a refusal if the watch may succeed with another token.
func (b *Backend) retriable(err error) error {
	if b.user.needsToken(err) {
		return status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return err
}
