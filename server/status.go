package server

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// toStatus turns an error of any service into the status that a client receives. A status that another member sent
// passes unchanged.
func (s *Server) toStatus(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil // before peerError is allocated
	}
	if peerError := (*forwarding.PeerError)(nil); errors.As(err, &peerError) {
		return peerError.Status
	}
	if namesapi.Owns(method) {
		return s.names.Answer(ctx, err)
	}
	return s.etcd.Answer(ctx, err)
}
