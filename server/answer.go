package server

import (
	"errors"

	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// answerTo turns an error of any service into the status that a client receives. An answer of another member stays as it
// is.
func (s *Server) answerTo(method string, err error) error {
	if err == nil {
		return nil // before said is allocated
	}
	if said := (*forwarding.PeerError)(nil); errors.As(err, &said) {
		return said.Status
	}
	if namesapi.Owns(method) {
		return s.names.Answer(err)
	}
	return s.etcd.Answer(err)
}
