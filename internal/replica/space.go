package replica

import (
	"math"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Defaults of [SpaceLimits].
const (
	DefaultMinFreeBytes = 256 << 20
	DefaultQuotaBytes   = 8 << 30
)

// SpaceLimits say when clients get no more space. Work that keeps promises (renewals, checkpoints, the ends of
// leases) and work that frees space (deletes, compaction) continues in the remaining space.
type SpaceLimits struct {
	MinFree uint64 // bytes of the file system to keep free; 0: none
	Quota   uint64 // bytes of data; 0: any number
}

// Space is an event: a reading of the space that there is. A replica that never got one refuses nothing.
type Space struct {
	Free uint64 // bytes that the file system has for this process; [UnknownFree] if unknown
	Used uint64 // bytes of data
	// Ordered is set while an operator denies clients space, however much there is.
	Ordered bool
	// Asked is set if an operator asked for this reading. Then a shortage ends at the limits themselves, and not at a
	// distance from them.
	Asked bool
}

func (Space) event() {}

// UnknownFree is the free space of a file system that does not report it.
const UnknownFree = math.MaxUint64

// Shortage says which of the limits is exceeded.
type Shortage int

// The shortages. If there is more than one, the first is named.
const (
	Enough Shortage = iota
	DiskFull
	QuotaExceeded
	Ordered // by an operator
)

func (s Shortage) String() string {
	switch s {
	case DiskFull:
		return "the disk is almost full"
	case QuotaExceeded:
		return "the data has reached its quota"
	case Ordered:
		return "an operator raised the alarm"
	}
	return "enough space"
}

// spaceGauge is what the replica knows of the room it has.
type spaceGauge struct {
	limits SpaceLimits
	seen   Space
	low    bool // free space was below the limit, and has not risen well above it since
	over   bool // the same for the quota
}

// see notes a reading. A shortage ends only with an eighth of the reserve, or a sixteenth of the quota, more than it
// began with. So a server at its limit does not change its mind with every write.
func (s *spaceGauge) see(e Space) {
	least, most := s.limits.MinFree, s.limits.Quota
	if s.low && !e.Asked {
		least += least / 8
	}
	if s.over && !e.Asked {
		most -= most / 16
	}
	s.seen = e
	s.low = e.Free < least
	s.over = s.limits.Quota > 0 && e.Used > most
}

func (s *spaceGauge) current() Shortage {
	switch {
	case s.low:
		return DiskFull
	case s.over:
		return QuotaExceeded
	case s.seen.Ordered:
		return Ordered
	}
	return Enough
}

// Shortage says whether clients get space, and if not, why.
func (r *Replica) Shortage() Shortage { return r.space.current() }

// onSpace notes how much space there is. When a shortage begins, the queued commands that need space are refused like
// those that come later.
func (r *Replica) onSpace(e Space) {
	before := r.space.current()
	r.space.see(e)
	if before != Enough || r.space.current() == Enough {
		return
	}
	r.fail(r.intake.Remove(entry.NeedsSpace), ErrNoSpace)
}

// lacksSpace refuses a request that needs space during a shortage, and reports whether it did.
func (r *Replica) lacksSpace(e Request) bool {
	if r.space.current() == Enough || !entry.NeedsSpace(e.Command) {
		return false
	}
	if claim, ok := e.Command.(ownership.Claim); ok {
		if _, there := r.names.ClaimOf(claim.Lease); there {
			return false // the claim exists already
		}
	}
	r.emit(Reply{ID: e.ID, Err: ErrNoSpace, Authority: forever})
	return true
}
