package backup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

const (
	// firstRetry is the pause after a failure. It doubles with each further one, up to the interval.
	firstRetry = time.Minute
	// spread is the part of the interval by which a backup may be later, so that members do not make theirs together.
	spread = 16
)

// pause returns how long to wait at now for the next backup. newest is the time of the newest backup, or zero; failures is
// the number of failures since. A newest backup of a later time than now shows that the clock was set back: the wait is
// never longer than the interval and its spread.
func pause(now, newest time.Time, every time.Duration, failures int, random uint64) time.Duration {
	if failures > 0 {
		return backoff.Doubled(min(firstRetry, every), every, failures-1)
	}
	if newest.IsZero() {
		return 0
	}
	left := min(newest.Add(every).Sub(now), every)
	return max(left+backoff.Between(0, every/spread, random), 0)
}

const (
	suffix   = ".snapshot"
	timeForm = "20060102T150405Z"
)

// origin is the data directory that backups are of. Two clusters whose servers have the same names may have the same ids of
// members. Incarnations are random.
type origin struct{ member, incarnation uint64 }

// prefix begins the names of the backups of o.
func (o origin) prefix() string {
	return fmt.Sprintf("leasekeeper-%016x-%016x-", o.member, o.incarnation)
}

// nameAt returns the name of a backup of o.
func (o origin) nameAt(at time.Time) string {
	return o.prefix() + at.UTC().Format(timeForm) + suffix
}

// timeOf returns the time in the name of a backup of o, or false if the name is not one.
func (o origin) timeOf(name string) (time.Time, bool) {
	text, ok := strings.CutPrefix(name, o.prefix())
	if !ok {
		return time.Time{}, false
	}
	if text, ok = strings.CutSuffix(text, suffix); !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(timeForm, text)
	return at, err == nil && o.nameAt(at) == name
}

// backups returns those names that are backups of o, in the order of the times in them.
func (o origin) backups(names []string) []string {
	own := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := o.timeOf(name)
		return !ok
	})
	slices.Sort(own) // the names have one length and differ in the time
	return own
}

// newest returns the time of the newest backup, or zero if there is none. Backups with later times than now were made before
// the clock was set back: they count only if there are no others, and then as made now.
func (o origin) newest(own []string, now time.Time) time.Time {
	for _, name := range slices.Backward(own) {
		if at, _ := o.timeOf(name); !at.After(now) {
			return at
		}
	}
	if len(own) > 0 {
		return now
	}
	return time.Time{}
}

// surplus returns the backups to remove, so that keep remain and made, the last one made, is one of them. Backups with later
// times than made were made before the clock was set back. They count as the oldest.
func surplus(own []string, made string, keep int) []string {
	later := slices.IndexFunc(own, func(name string) bool { return name > made })
	byAge := own
	if later >= 0 {
		byAge = slices.Concat(own[later:], own[:later])
	}
	return byAge[:max(0, len(own)-keep)]
}

// leftover reports whether a name is that of unfinished work on a backup of o.
func (o origin) leftover(name string) bool {
	return strings.HasPrefix(name, hidden+o.prefix())
}

// hidden begins the names of unfinished work. The rest is the name of the backup, and then partial or unpacked.
const (
	hidden   = "."
	partial  = ".partial"
	unpacked = ".unpacked"
)
