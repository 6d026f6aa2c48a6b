package intake

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Decode returns a command of an entry and its caller. Waiting are the requests that wait for the entry; nil if another member
// proposed it. The member that proposed a claim or a release does not decode it again. A claim gets its creator here, and a grant
// its owner.
func Decode(text []byte, waiting []Pending, ordinal int) (c entry.Command, by access.Caller, err error) {
	if waiting != nil {
		c, by = waiting[ordinal].Command, waiting[ordinal].Caller
	}
	switch c.(type) {
	case ownership.Claim, ownership.Release:
	default:
		c, by, err = entry.Decode(text)
	}
	if by.User == "" || err != nil {
		return c, by, err
	}
	switch made := c.(type) {
	case ownership.Claim:
		made.Creator = by.User
		c = made
	case entry.Grant:
		made.Owner = by.User
		c = made
	}
	return c, by, err
}
