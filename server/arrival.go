package server

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

const (
	// maxHeaderBytes bounds the headers of one request while they are read, and maxKeptHeaderBytes what of them is kept
	// until it is over.
	maxHeaderBytes     = 64 << 10
	maxKeptHeaderBytes = 4 << 10
	// maxMethodBytes bounds the name of a method. Those that exist are shorter.
	maxMethodBytes = 256

	// arrivalLimit bounds how long a message takes to arrive once it has begun, and arrivalLook is the time between two
	// looks whether one takes longer.
	arrivalLimit = 30 * time.Second
	arrivalLook  = 2 * time.Second

	// answerPause and longestAnswerPause lie between two looks whether there is room for a message of a stream.
	answerPause        = time.Millisecond
	longestAnswerPause = 100 * time.Millisecond
)

// keptHeaders are the headers that this server or gRPC reads.
var keptHeaders = []string{":authority", "content-type", "user-agent", "grpc-accept-encoding", "hasleader"}

var (
	errLargeHeaders = status.Error(codes.ResourceExhausted, "etcdserver: the headers of the request are too large")
	errManyOpen     = status.Error(codes.ResourceExhausted, "etcdserver: too many requests are open on all connections: try again later, or allow more with --memory-limit")
)

// atHeaders is called with the headers of every request of a client, before anything else of it is kept. It refuses the
// request if too many are open, and forgets headers that nobody reads.
func (s *Server) atHeaders(ctx context.Context, info *tap.Info) (context.Context, error) {
	if s.budget.open.Load() > s.budget.openMost {
		s.metrics.Refuse(admission.ReasonMemory)
		return ctx, errManyOpen
	}
	if len(info.FullMethodName) <= maxMethodBytes && keptBytes(info.Header) <= maxKeptHeaderBytes {
		return ctx, nil
	}
	for name := range info.Header { // order: all the same
		if !slices.Contains(keptHeaders, name) {
			delete(info.Header, name)
		}
	}
	if len(info.FullMethodName) > maxMethodBytes || keptBytes(info.Header) > maxKeptHeaderBytes {
		s.metrics.Refuse(admission.ReasonMemory)
		return ctx, errLargeHeaders
	}
	return ctx, nil
}

// keptBytes is about how much memory headers take.
func keptBytes(header metadata.MD) (n int) {
	const perValue = 64
	for name, values := range header { // order: a sum
		n += len(name) + perValue
		for _, v := range values {
			n += len(v) + perValue
		}
	}
	return n
}

// watchArrivals closes connections that owe the rest of a message for too long, until the server stops.
func (s *Server) watchArrivals() {
	tick := time.NewTicker(arrivalLook)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.budget.closeLate(now, s.arrivalLimit)
			s.budget.forgetPaces(now)
		case <-s.life.Done():
			return
		}
	}
}

// closeLate closes the connections that have owed the rest of a message for longer than limit.
func (b *budget) closeLate(now time.Time, limit time.Duration) {
	for _, a := range b.all() {
		if since := a.meter.oldest(); !since.IsZero() && now.Sub(since) > limit {
			a.abandon()
		}
	}
}
