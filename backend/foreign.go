package backend

import (
	"context"
	"time"
)

// ForeignLock is a lock that a program holds in the store without Leasekeeper. Texts are as that program wrote them.
type ForeignLock struct {
	// Kind is one of [ForeignLister.ForeignKinds].
	Kind string
	Name string
	// Holder is how the lock's own record identifies its holder.
	Holder string
	// Text is what the holder wrote besides; empty if there is none.
	Text string
	// Token rises with each holder of the lock; 0 if the lock has no such number.
	Token Token
	// Since is when the lock was taken, by the clock that its record uses; zero if unknown.
	Since time.Time
	// TTL is the length of the lease; 0 if unknown, or if the lock does not end by time.
	TTL time.Duration
	// Remaining is how long the lock lasts if it is not renewed, as the store counts it at its answer. It is negative if the
	// lock does not end by time, such as a lock of a session.
	Remaining time.Duration
	// Waiting is the length of the queue; -1 if the store cannot tell.
	Waiting int
}

// ForeignLister lists locks of programs that do not use Leasekeeper. It only reads.
type ForeignLister interface {
	// ForeignKinds returns the kinds of locks that this backend recognizes, for people; none if it recognizes none. The
	// result never changes. The caller must not change it.
	ForeignKinds() []string
	// ForeignLocks returns locks that are held now, at most limit, in the order of kinds and names. more says that there may
	// be others. A backend that recognizes none returns an [*UnsupportedError]. One call reads a bounded part of the store.
	ForeignLocks(ctx context.Context, limit int) (locks []ForeignLock, more bool, err error)
}
