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

// prefix begins the names of a member's backups.
func prefix(member uint64) string { return fmt.Sprintf("leasekeeper-%016x-", member) }

// nameAt returns the name of a member's backup.
func nameAt(member uint64, at time.Time) string {
	return prefix(member) + at.UTC().Format(timeForm) + suffix
}

// timeOf returns the time in the name of a member's backup, or false if the name is not one.
func timeOf(member uint64, name string) (time.Time, bool) {
	text, ok := strings.CutPrefix(name, prefix(member))
	if !ok {
		return time.Time{}, false
	}
	if text, ok = strings.CutSuffix(text, suffix); !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(timeForm, text)
	return at, err == nil && nameAt(member, at) == name
}

// ownBackups returns those names that are a member's backups, oldest first.
func ownBackups(member uint64, names []string) []string {
	own := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := timeOf(member, name)
		return !ok
	})
	slices.Sort(own) // the names have one length and differ in the time
	return own
}

// surplus returns the backups to remove, so that keep remain.
func surplus(own []string, keep int) []string { return own[:max(0, len(own)-keep)] }

// leftover reports whether a name is that of unfinished work of a member.
func leftover(member uint64, name string) bool {
	return strings.HasPrefix(name, hidden+prefix(member))
}

// hidden begins the names of unfinished work. The rest is the name of the backup, and then partial or unpacked.
const (
	hidden   = "."
	partial  = ".partial"
	unpacked = ".unpacked"
)
