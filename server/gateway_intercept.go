package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// interceptGatewayUnary intercepts the unary requests that come through the gateway, and marks them. It counts the memory
// of the answer to a request in etcd's API until the client has it as JSON.
func (s *Server) interceptGatewayUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx = admission.MarkGatewayRequest(ctx)
	q := s.jsonRequest(ctx)
	if q != nil {
		ctx = peer.NewContext(ctx, q.client)
	}
	ctx, err := s.guard.Arrive(ctx, info.FullMethod)
	switch {
	case err != nil:
		return nil, s.refused(ctx, info.FullMethod, err)
	case q == nil:
		return s.unary(ctx, req, info, handle)
	}
	if buildsAnswers[info.FullMethod] {
		ctx = keyspace.WithRoom(ctx, q)
	}
	resp, err := s.unary(ctx, req, info, handle)
	if message, ok := resp.(proto.Message); ok && err == nil {
		q.settle(proto.Size(message))
	}
	return resp, err
}

// interceptGatewayStream intercepts the streams that come through the gateway, and marks them. It counts those of etcd's
// API, and the memory of their newest message.
func (s *Server) interceptGatewayStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx := admission.MarkGatewayRequest(stream.Context())
	q := s.jsonRequest(ctx)
	if q != nil {
		ctx = peer.NewContext(ctx, q.client)
	}
	ctx, err := s.guard.Arrive(ctx, info.FullMethod)
	switch {
	case err != nil:
		return s.refused(ctx, info.FullMethod, err)
	case q == nil:
		stream = admission.WithContext(ctx, stream)
	default:
		if err := q.account.take(longStreams, 1); err != nil {
			return s.refused(ctx, info.FullMethod, err)
		}
		defer q.account.release(longStreams, 1)
		stream = &jsonStream{admission.WithContext(ctx, stream), q}
	}
	return s.stream(srv, stream, info, handle)
}

// jsonRequest returns the JSON request in etcd's API for which the gateway has sent a request, nil if there is none.
func (s *Server) jsonRequest(ctx context.Context) *jsonRequest {
	if s.etcdJSON == nil || !admission.FromGateway(ctx) {
		return nil
	}
	return s.etcdJSON.open.of(ctx)
}

// jsonStream counts the memory of the newest message of a stream.
type jsonStream struct {
	grpc.ServerStream
	request *jsonRequest
}

// SendMsg implements [grpc.ServerStream]. It waits until there is memory for the message.
func (j *jsonStream) SendMsg(m any) error {
	if message, ok := m.(proto.Message); ok {
		if err := j.request.await(j.Context(), proto.Size(message)); err != nil {
			return err
		}
	}
	return j.ServerStream.SendMsg(m)
}
