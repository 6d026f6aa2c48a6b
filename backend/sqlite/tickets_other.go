//go:build !linux

package sqlite

import (
	"errors"
	"io/fs"
)

// ticketFile is missing here: this system has no locks that belong to an open file instead of the process.
type ticketFile struct{}

func openTickets(string, fs.FileInfo) (*ticketFile, error) { return nil, errors.ErrUnsupported }

func (*ticketFile) close() error { return nil }
func (*ticketFile) counters(uint32) (last, passed uint32, err error) {
	return 0, 0, errors.ErrUnsupported
}
func (*ticketFile) take(uint32) (uint32, error)       { return 0, errors.ErrUnsupported }
func (*ticketFile) unlockTicket(uint32, uint32) error { return errors.ErrUnsupported }
func (*ticketFile) passOver(uint32, uint32) error     { return errors.ErrUnsupported }
func (*ticketFile) first(uint32, uint32, uint32) (uint32, bool, error) {
	return 0, false, errors.ErrUnsupported
}
