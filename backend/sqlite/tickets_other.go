//go:build !linux

package sqlite

import (
	"errors"
	"io/fs"

	"github.com/leasekeeper/leasekeeper/backend"
)

// ticketFile is missing here: this system has no locks that belong to an open file instead of the process.
type ticketFile struct{}

func openTickets(string, fs.FileInfo) (*ticketFile, error) { return nil, errors.ErrUnsupported }

func (*ticketFile) close() error                                 { return nil }
func (*ticketFile) join(uint32, backend.Priority) (int64, error) { return 0, errors.ErrUnsupported }
func (*ticketFile) leave(uint32, int64) error                    { return errors.ErrUnsupported }
func (*ticketFile) pass(uint32, int64) error                     { return errors.ErrUnsupported }
func (*ticketFile) counts(uint32, int64) (bool, error)           { return false, errors.ErrUnsupported }
func (*ticketFile) head(uint32, int64) (int64, bool, error)      { return 0, false, errors.ErrUnsupported }
