package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// Defaults of [SpaceLimits].
const (
	DefaultMinFreeBytes = 256 << 20
	DefaultQuotaBytes   = 8 << 30
)

// SpaceLimits is [intake.SpaceLimits].
type SpaceLimits = intake.SpaceLimits

// Shortage is [intake.Shortage].
type Shortage = intake.Shortage

// The shortages, and the free space of a file system that does not report it.
const (
	Enough, DiskFull, QuotaExceeded, Ordered = intake.Enough, intake.DiskFull, intake.QuotaExceeded, intake.Ordered
	UnknownFree                              = intake.UnknownFree
)

// Shortage says whether clients get space, and if not, why.
func (r *Replica) Shortage() Shortage { return r.space.Current() }

// onSpace notes how much space there is. When a shortage begins, the queued commands that need space are refused like
// those that come later.
func (r *Replica) onSpace(e Space) {
	before := r.space.Current()
	r.space.See(intake.SpaceReading(e))
	if before != Enough || r.space.Current() == Enough {
		return
	}
	r.fail(r.intake.Remove(entry.NeedsSpace), ErrNoSpace)
}

// lacksSpace reports whether a command is refused because it needs space during a shortage.
func (r *Replica) lacksSpace(c entry.Command) bool {
	return r.space.Current() != Enough && entry.NeedsSpace(c) && !r.repeats(c)
}
