package yield

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
)

const timeout, tick = time.Second, 100 * time.Millisecond

// start is when each test begins. The origins of the two clocks differ.
var start = clock.Instant{Raw: int64(time.Hour), Boot: int64(3 * time.Hour)}

// first chooses the first of some members.
func first(ids []uint64) uint64 {
	if len(ids) == 0 {
		return 0
	}
	return ids[0]
}

// compared returns a write that began at an instant, and that these members had early.
func compared(sequence uint64, since clock.Instant, quick ...uint64) *Write {
	return &Write{Sequence: sequence, Since: since, compared: true, quick: quick}
}

// A write is compared with what other members have once: after an eighth of the election timeout, and before a quarter.
func TestWritesAreComparedOnceAndEarly(t *testing.T) {
	for age, want := range map[time.Duration]struct{ asked, compared bool }{
		timeout/quickPart - 1: {false, false},
		timeout / quickPart:   {true, true},
		timeout/slowPart - 1:  {true, true},
		timeout / slowPart:    {false, true}, // this process stood still
	} {
		j, w, asked := New(timeout, tick), &Write{Sequence: 1, Since: start}, 0
		have := func() []uint64 { asked++; return []uint64{7} }
		for range 2 {
			j.Faster(start.Add(age), w, have)
		}
		if w.Compared() != want.compared || asked != map[bool]int{true: 1}[want.asked] {
			t.Errorf("after %v: compared %v, and %d times asked what the others have", age, w.Compared(), asked)
		}
	}
}

// Slow writes count if others were quick. Two in a row, or a very slow one, are enough.
func TestSlowWritesCountIfOthersAreQuick(t *testing.T) {
	slow, verySlow := timeout/slowPart, timeout/verySlowPart
	type write struct {
		at    time.Duration // when it is looked at
		age   time.Duration
		quick []uint64
	}
	quick := []uint64{7, 9}
	for name, test := range map[string]struct {
		writes []write
		want   []uint64
	}{
		"one slow write":                   {[]write{{0, slow, quick}}, nil},
		"one very slow write":              {[]write{{0, verySlow, quick}}, quick},
		"almost very slow":                 {[]write{{0, verySlow - 1, quick}}, nil},
		"two slow writes":                  {[]write{{0, slow, quick}, {timeout, slow, quick[:1]}}, quick[:1]},
		"the second is not slow":           {[]write{{0, slow, quick}, {timeout, slow - 1, quick}}, nil},
		"no member had the first soon":     {[]write{{0, slow, nil}, {timeout, slow, quick}}, nil},
		"no member had the second soon":    {[]write{{0, slow, quick}, {timeout, verySlow, nil}}, nil},
		"just within memory":               {[]write{{0, slow, quick}, {slowMemory * timeout, slow, quick}}, quick},
		"the first is long ago":            {[]write{{0, slow, quick}, {slowMemory*timeout + 1, slow, quick}}, nil},
		"the second after the pause again": {[]write{{0, slow, quick}, {slowMemory*timeout + 1, slow, quick}, {slowMemory*timeout + 2, slow, quick}}, quick},
	} {
		j := New(timeout, tick)
		var got []uint64
		for i, w := range test.writes {
			now := start.Add(w.at)
			got = j.Faster(now, compared(uint64(i+1), now.Add(-w.age), w.quick...), nil)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v are faster, want %v", name, got, test.want)
		}
	}
}

// A slow write counts once, however often it is looked at.
func TestOneWriteCountsOnce(t *testing.T) {
	j := New(timeout, tick)
	w := compared(1, start, 7)
	for age := timeout / slowPart; age < timeout/verySlowPart; age += time.Millisecond {
		if got := j.Faster(start.Add(age), w, nil); got != nil {
			t.Fatalf("after %v of one write %v are faster", age, got)
		}
	}
}

// A member that does not lead forgets its slow writes and its shortage.
func TestForgetDropsSlownessAndShortage(t *testing.T) {
	j := New(timeout, tick)
	j.Faster(start, compared(1, start.Add(-timeout/slowPart), 7), nil)
	j.Roomier(start, intake.DiskFull, nil)
	j.Forget()
	now := start.Add(timeout)
	j.Hear(now, 7, memberpb.Room_ROOM_ENOUGH)
	if got := j.Faster(now, compared(2, now.Add(-timeout/slowPart), 7), nil); got != nil {
		t.Errorf("after one slow write %v are faster", got)
	}
	if got := j.Roomier(now, intake.DiskFull, []uint64{7}); got != nil {
		t.Errorf("at the beginning of a shortage %v are roomier", got)
	}
}

// The driver wakes when it is time to compare a write, and at once if that time has passed.
func TestComparisonComesInTime(t *testing.T) {
	j := New(timeout, tick)
	for age, want := range map[time.Duration]time.Duration{
		0:                                    timeout / quickPart,
		timeout/quickPart - time.Millisecond: time.Millisecond,
		timeout / quickPart:                  0,
		timeout:                              0,
	} {
		if got := j.UntilCompared(start.Add(age), &Write{Since: start}); got != want {
			t.Errorf("after %v it waits for %v, want %v", age, got, want)
		}
	}
}

// A leader that was full for an election timeout finds the members that reported room lately.
func TestFullLeaderFindsRoomierMembers(t *testing.T) {
	enough, short, unknown := memberpb.Room_ROOM_ENOUGH, memberpb.Room_ROOM_SHORT, memberpb.Room_ROOM_UNKNOWN
	for name, test := range map[string]struct {
		shortage intake.Shortage
		lasts    time.Duration
		heard    time.Duration // how old the reports are
		reports  map[uint64][]memberpb.Room
		want     []uint64
	}{
		"full disk":         {intake.DiskFull, timeout, 0, map[uint64][]memberpb.Room{2: {enough}, 3: {enough}}, []uint64{2, 3}},
		"quota exceeded":    {intake.QuotaExceeded, timeout, 0, map[uint64][]memberpb.Room{3: {enough}}, []uint64{3}},
		"an alarm":          {intake.Ordered, timeout, 0, map[uint64][]memberpb.Room{3: {enough}}, nil},
		"no shortage":       {intake.Enough, timeout, 0, map[uint64][]memberpb.Room{3: {enough}}, nil},
		"it may pass":       {intake.DiskFull, timeout - 1, 0, map[uint64][]memberpb.Room{3: {enough}}, nil},
		"fresh enough":      {intake.DiskFull, timeout, freshTicks * tick, map[uint64][]memberpb.Room{3: {enough}}, []uint64{3}},
		"an old report":     {intake.DiskFull, timeout, freshTicks*tick + 1, map[uint64][]memberpb.Room{3: {enough}}, nil},
		"others are full":   {intake.DiskFull, timeout, 0, map[uint64][]memberpb.Room{2: {short}, 3: {enough, short}}, nil},
		"nothing reported":  {intake.DiskFull, timeout, 0, map[uint64][]memberpb.Room{2: {unknown}}, nil},
		"newest known":      {intake.DiskFull, timeout, 0, map[uint64][]memberpb.Room{2: {short, enough}, 3: {enough, unknown}}, []uint64{2, 3}},
		"not of the voters": {intake.DiskFull, timeout, 0, map[uint64][]memberpb.Room{5: {enough}}, nil},
	} {
		j := New(timeout, tick)
		now := start.Add(test.lasts)
		for _, member := range []uint64{2, 3, 5} {
			for _, room := range test.reports[member] {
				j.Hear(now.Add(-test.heard), member, room)
			}
		}
		j.Roomier(start, test.shortage, nil)
		if got := j.Roomier(now, test.shortage, []uint64{1, 2, 3}); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v are roomier, want %v", name, got, test.want)
		}
	}
}

// A shortage that ends in between begins again.
func TestShortageCountsFromItsBeginning(t *testing.T) {
	j := New(timeout, tick)
	j.Roomier(start, intake.DiskFull, nil)
	j.Roomier(start.Add(timeout/2), intake.Enough, nil)
	j.Roomier(start.Add(timeout/2+1), intake.QuotaExceeded, nil)
	now := start.Add(timeout)
	j.Hear(now, 2, memberpb.Room_ROOM_ENOUGH)
	if got := j.Roomier(now, intake.DiskFull, []uint64{2}); got != nil {
		t.Errorf("half a timeout after the beginning %v are roomier", got)
	}
	now = start.Add(timeout/2 + 1 + timeout)
	j.Hear(now, 2, memberpb.Room_ROOM_ENOUGH)
	if got := j.Roomier(now, intake.DiskFull, []uint64{2}); !slices.Equal(got, []uint64{2}) {
		t.Errorf("an election timeout after the beginning %v are roomier", got)
	}
}

// A report that says nothing leaves the one before it.
func TestUnknownRoomKeepsTheLastReport(t *testing.T) {
	j := New(timeout, tick)
	if j.LacksRoom(2) {
		t.Error("a member that reported nothing lacks room")
	}
	j.Hear(start, 2, memberpb.Room_ROOM_SHORT)
	j.Hear(start, 2, memberpb.Room_ROOM_UNKNOWN)
	if !j.LacksRoom(2) {
		t.Error("a report of nothing replaces the one before it")
	}
	if j.Hear(start, 2, memberpb.Room_ROOM_ENOUGH); j.LacksRoom(2) {
		t.Error("a member that reported room lacks it")
	}
}

// A slow leader that is full as well names its slowness if a faster member can take over. It stays if no member can.
func TestChoiceTakesAMemberThatCanTakeOver(t *testing.T) {
	for name, test := range map[string]struct {
		faster, roomier []uint64
		to              uint64
		reason          Reason
	}{
		"none":                  {nil, nil, 0, None},
		"faster":                {[]uint64{2, 3}, nil, 2, Slow},
		"roomier":               {nil, []uint64{3}, 3, Full},
		"both":                  {[]uint64{2}, []uint64{3}, 2, Slow},
		"the faster one cannot": {[]uint64{9}, []uint64{3}, 3, Full},
		"none can":              {[]uint64{9}, []uint64{9}, 0, None},
	} {
		j := New(timeout, tick)
		to := j.Choose(start, test.faster, test.roomier, func(ids []uint64) uint64 { return first(ids) % 9 })
		if to != test.to || j.Reason() != test.reason {
			t.Errorf("%s: member %d because of %q, want %d because of %q", name, to, j.Reason(), test.to, test.reason)
		}
	}
}

// After a hand-over, and after taking over, a member rests for the interval. A leader that stayed does not rest.
func TestHandOversAreAnIntervalApart(t *testing.T) {
	for name, begin := range map[string]func(j *Judge){
		"after a hand-over":   func(j *Judge) { j.Choose(start, []uint64{2}, nil, first) },
		"after a take-over":   func(j *Judge) { j.TookOver(start) },
		"after it had stayed": func(j *Judge) { j.Choose(start, nil, nil, first) },
	} {
		j := New(timeout, tick)
		begin(&j)
		before := j
		stays := name == "after it had stayed"
		if to := before.Choose(start.Add(Interval), []uint64{2}, nil, first); (to != 0) != stays {
			t.Errorf("%s: at the end of the interval member %d takes over", name, to)
		}
		if to := j.Choose(start.Add(Interval+1), []uint64{2}, nil, first); to != 2 {
			t.Errorf("%s: after the interval member %d takes over", name, to)
		}
	}
}

// A hand-over ends what counted for it. The members' reports remain.
func TestHandOverKeepsOnlyReports(t *testing.T) {
	j := New(timeout, tick)
	j.Hear(start, 2, memberpb.Room_ROOM_SHORT)
	j.Faster(start, compared(1, start.Add(-timeout/slowPart), 7), nil)
	j.Roomier(start, intake.DiskFull, nil)
	if j.Choose(start, []uint64{7}, nil, first) != 7 {
		t.Fatal("it stays")
	}
	if !j.LacksRoom(2) {
		t.Error("a report is lost")
	}
	now := start.Add(timeout)
	j.Hear(now, 3, memberpb.Room_ROOM_ENOUGH)
	if got := j.Faster(now, compared(2, now.Add(-timeout/slowPart), 7), nil); got != nil {
		t.Errorf("after one slow write since the hand-over %v are faster", got)
	}
	if got := j.Roomier(now, intake.DiskFull, []uint64{3}); got != nil {
		t.Errorf("at the beginning of a shortage %v are roomier", got)
	}
}

// Each reason has its text.
func TestReasonsSayWhy(t *testing.T) {
	for reason, want := range map[Reason]string{
		None: "no reason",
		Slow: "the disk is far slower than that of another member",
		Full: "there is no space for clients, and another member has some",
	} {
		if got := reason.String(); got != want {
			t.Errorf("reason %d says %q", reason, got)
		}
	}
}

// A member has room if it knows that it has, and not only just.
func TestRoomIsKnownAndAmple(t *testing.T) {
	for what, c := range map[string]struct {
		limits intake.SpaceLimits
		seen   intake.SpaceReading
		want   memberpb.Room
	}{
		"no limits":             {intake.SpaceLimits{}, intake.SpaceReading{Free: 1 << 40}, memberpb.Room_ROOM_UNKNOWN},
		"space of no known end": {intake.SpaceLimits{MinFree: 1000}, intake.SpaceReading{Free: intake.UnknownFree}, memberpb.Room_ROOM_UNKNOWN},
		"ample space":           {intake.SpaceLimits{MinFree: 1000}, intake.SpaceReading{Free: 5000, Used: 5000}, memberpb.Room_ROOM_ENOUGH},
		"little space":          {intake.SpaceLimits{MinFree: 1000}, intake.SpaceReading{Free: 1001}, memberpb.Room_ROOM_UNKNOWN},
		"no space":              {intake.SpaceLimits{MinFree: 1000}, intake.SpaceReading{Free: 1}, memberpb.Room_ROOM_SHORT},
		"much of a quota":       {intake.SpaceLimits{Quota: 1600}, intake.SpaceReading{Free: intake.UnknownFree, Used: 1550}, memberpb.Room_ROOM_UNKNOWN},
		"little of a quota":     {intake.SpaceLimits{Quota: 1600}, intake.SpaceReading{Free: intake.UnknownFree, Used: 100}, memberpb.Room_ROOM_ENOUGH},
	} {
		s := &intake.SpaceGauge{Limits: c.limits, Seen: intake.SpaceReading{Free: intake.UnknownFree}}
		s.See(c.seen)
		if got := Room(s); got != c.want {
			t.Errorf("with %s: %v", what, got)
		}
	}
}
