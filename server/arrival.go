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
	// maxHeaderBytes bounds the headers of one request while the server reads them. maxKeptHeaderBytes bounds the
	// headers that it keeps until the request ends.
	maxHeaderBytes     = 64 << 10
	maxKeptHeaderBytes = 4 << 10
	// maxMethodBytes bounds the name of a method. All existing methods have shorter names.
	maxMethodBytes = 256

	// arrivalLimit bounds the time from the first byte of a message to its last. The server checks all connections
	// every arrivalCheckInterval.
	arrivalLimit         = 30 * time.Second
	arrivalCheckInterval = 2 * time.Second

	// sendPause and longestSendPause are the shortest and the longest pause of a stream whose message finds no memory.
	sendPause        = time.Millisecond
	longestSendPause = 100 * time.Millisecond
)

// keptHeaders are the headers that this server or gRPC reads.
var keptHeaders = []string{":authority", "content-type", "user-agent", "grpc-accept-encoding", "hasleader", "token", "authorization"}

var (
	errLargeHeaders = status.Error(codes.ResourceExhausted, "etcdserver: the headers of the request are too large")
	errManyOpen     = status.Error(codes.ResourceExhausted, "etcdserver: too many requests are open on all connections: try again later, or allow more with --memory-limit")
)

// admitHeaders receives the headers of every client request before the server keeps anything else of it. It refuses the
// request if too many are open, and removes headers that the server does not read.
func (s *Server) admitHeaders(ctx context.Context, info *tap.Info) (context.Context, error) {
	if s.budget.open.Load() > s.budget.openMost {
		s.metrics.Refuse(admission.ReasonMemory)
		return ctx, errManyOpen
	}
	if len(info.FullMethodName) <= maxMethodBytes && headerBytes(info.Header) <= maxKeptHeaderBytes {
		return ctx, nil
	}
	for name := range info.Header { // order: all the same
		if !slices.Contains(keptHeaders, name) {
			delete(info.Header, name)
		}
	}
	if len(info.FullMethodName) > maxMethodBytes || headerBytes(info.Header) > maxKeptHeaderBytes {
		s.metrics.Refuse(admission.ReasonMemory)
		return ctx, errLargeHeaders
	}
	return ctx, nil
}

// headerBytes estimates the memory that headers take, in bytes.
func headerBytes(header metadata.MD) (n int) {
	const perValue = 64
	for name, values := range header { // order: a sum
		n += len(name) + perValue
		for _, v := range values {
			n += len(v) + perValue
		}
	}
	return n
}

// watchArrivals closes connections whose message has not arrived in full within the limit. It runs until the server
// stops.
func (s *Server) watchArrivals() {
	tick := time.NewTicker(arrivalCheckInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.budget.closeLate(now, s.arrivalLimit)
			s.budget.forgetResetLimiters(now)
		case <-s.life.Done():
			return
		}
	}
}

// closeLate closes the connections that have had an incomplete message for longer than limit.
func (b *budget) closeLate(now time.Time, limit time.Duration) {
	for _, a := range b.all() {
		if since := a.meter.oldest(); !since.IsZero() && now.Sub(since) > limit {
			a.abandon()
		}
	}
}
