package intake

import "math"

// SpaceLimits say when clients get no more space. Work that keeps promises (renewals, checkpoints, the ends of
// leases) and work that frees space (deletes, compaction) continues in the remaining space.
type SpaceLimits struct {
	MinFree uint64 // bytes of the file system to keep free; 0: none
	Quota   uint64 // bytes of data; 0: any number
}

// SpaceReading is a reading of the space that there is.
type SpaceReading struct {
	Free uint64 // bytes that the file system has for this process; [UnknownFree] if unknown
	Used uint64 // bytes of data
	// Ordered is set while an operator denies clients space, however much there is.
	Ordered bool
	// Asked is set if an operator asked for this reading. Then a shortage ends at the limits themselves, and not at a
	// distance from them.
	Asked bool
}

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

// SpaceGauge is what a member knows of the space that it has.
type SpaceGauge struct {
	Limits SpaceLimits
	Seen   SpaceReading // the newest one
	low    bool         // free space was below the limit, and has not risen well above it since
	over   bool         // the same for the quota
}

// See notes a reading. A shortage ends only with an eighth of the reserve, or a sixteenth of the quota, more than it
// began with. So a server at its limit does not change its mind with every write.
func (s *SpaceGauge) See(e SpaceReading) {
	least, most := s.Limits.MinFree, s.Limits.Quota
	if s.low && !e.Asked {
		least += least / 8
	}
	if s.over && !e.Asked {
		most -= most / 16
	}
	s.Seen = e
	s.low = e.Free < least
	s.over = s.Limits.Quota > 0 && e.Used > most
}

// Current says whether clients get space, and if not, why.
func (s *SpaceGauge) Current() Shortage {
	switch {
	case s.low:
		return DiskFull
	case s.over:
		return QuotaExceeded
	case s.Seen.Ordered:
		return Ordered
	}
	return Enough
}

// Near reports whether a limit is nearer than the distance at which a shortage would end.
func (s *SpaceGauge) Near() bool {
	return s.Seen.Free < s.Limits.MinFree+s.Limits.MinFree/8 || s.Limits.Quota > 0 && s.Seen.Used > s.Limits.Quota-s.Limits.Quota/16
}
