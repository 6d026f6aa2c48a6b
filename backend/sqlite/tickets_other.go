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
func (*ticketFile) showHolder(uint32, uint32) error              { return errors.ErrUnsupported }
func (*ticketFile) hideHolder(uint32, uint32) error              { return errors.ErrUnsupported }
func (*ticketFile) awaits(uint32, uint32) (bool, error)          { return false, errors.ErrUnsupported }
func (*ticketFile) prefer(uint32, uint32) (bool, error)          { return false, errors.ErrUnsupported }
func (*ticketFile) passHolder(uint32, uint32) error              { return errors.ErrUnsupported }
func (*ticketFile) preferred(uint32) ([]uint32, error)           { return nil, errors.ErrUnsupported }
func (*ticketFile) leaveFor(uint32, ownTicket) error             { return errors.ErrUnsupported }
func holderOf(string) uint32                                     { return 0 }
func preferredPlace(uint32) int64                                { return 0 }
func (*ticketFile) head(uint32, int64) (int64, bool, error)      { return 0, false, errors.ErrUnsupported }
