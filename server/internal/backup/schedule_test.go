package backup

import (
	"slices"
	"testing"
	"time"
)

func TestPauseKeepsTheInterval(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const every = 16 * time.Minute
	for _, c := range []struct {
		what     string
		newest   time.Time
		every    time.Duration
		failures int
		least    time.Duration
		most     time.Duration
	}{
		{"the first backup", time.Time{}, every, 0, 0, 0},
		{"after one", now, every, 0, every, every + time.Minute},
		{"some time after one", now.Add(-10 * time.Minute), every, 0, 6 * time.Minute, 7 * time.Minute},
		{"long after one", now.Add(-time.Hour), every, 0, 0, 0},
		{"after the clock was set back", now.Add(time.Hour), every, 0, every, every + time.Minute},
		{"after a failure", time.Time{}, every, 1, time.Minute, time.Minute},
		{"after three failures", now, every, 3, 4 * time.Minute, 4 * time.Minute},
		{"after many failures", now.Add(-time.Hour), every, 99, every, every},
		{"after a failure, often", now, time.Second, 1, time.Second, time.Second},
	} {
		for _, random := range []uint64{0, 1 << 63, 1<<64 - 1} {
			if got := pause(now, c.newest, c.every, c.failures, random); got < c.least || got > c.most {
				t.Errorf("%s: %v, want %v to %v", c.what, got, c.least, c.most)
			}
		}
	}
}

// Only complete backups of the member itself are removed, the oldest first.
func TestRetentionRemovesOnlyOwnBackups(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mine := origin{7, 1}
	var own []string
	for i := range 5 {
		own = append(own, mine.nameAt(at.Add(time.Duration(i)*time.Hour)))
	}
	names := slices.Concat([]string{own[3], own[1]}, []string{
		origin{8, 1}.nameAt(at), "holiday.jpg", ".leasekeeper-0000000000000007-0000000000000001-20260102T030405Z.snapshot.partial",
		"leasekeeper-0000000000000007-0000000000000001-20260102.snapshot", "leasekeeper-0000000000000007-0000000000000001-yesterday.snapshot",
		origin{7, 2}.nameAt(at), own[0] + ".old",
	}, []string{own[4], own[0], own[2]})
	got := mine.backups(names)
	if !slices.Equal(got, own) {
		t.Fatalf("own backups are %v, want %v", got, own)
	}
	for keep, want := range map[int][]string{1: own[:4], 3: own[:2], 5: nil, 9: nil} { // order: each is tried by itself
		if got := surplus(own, own[4], keep); !slices.Equal(got, want) {
			t.Errorf("keep %d: remove %v, want %v", keep, got, want)
		}
	}
	if got, want := surplus(own, own[2], 3), own[3:]; !slices.Equal(got, want) {
		t.Errorf("after the clock was set back: remove %v, want %v", got, want)
	}
	if got, want := surplus(own, own[1], 1), slices.Concat(own[2:], own[:1]); !slices.Equal(got, want) {
		t.Errorf("after the clock was set back, keep 1: remove %v, want %v", got, want)
	}
	if when, ok := mine.timeOf(own[2]); !ok || !when.Equal(at.Add(2*time.Hour)) {
		t.Errorf("the time of %s is %v", own[2], when)
	}
	if !mine.leftover(names[4]) || (origin{8, 1}).leftover(names[4]) || (origin{7, 2}).leftover(names[4]) || mine.leftover(own[0]) {
		t.Error("unfinished work is not told from backups")
	}
}
