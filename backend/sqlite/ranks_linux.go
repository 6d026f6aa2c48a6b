package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Tickets with the priority 0 have the locks and counters that all versions know. Those of other priorities have locks
// of their own, behind all of these, which older programs do not see. The order of these locks in the file is that of
// the tickets: by queue, then by priority with the highest first, then by number.
const (
	rankedLock   = 1 << 62
	rankBits     = 16
	rankedPlaces = 1 << 26 // of each priority in each queue

	// The notes of a queue follow the counters of all queues. They have the last places that were passed over, each for
	// its priority.
	firstNote  = queueCount * counterBytes
	noteBytes  = 64 // of each queue
	passedKept = 4  // if more priorities have one, the oldest counts again, and the ticket is passed over once more
)

// rankedByte returns the byte that is locked for the n-th ticket of a priority.
func rankedByte(queue uint32, p backend.Priority, n int64) int64 {
	rank := math.MaxInt16 - int64(p)
	return rankedLock + (int64(queue)<<rankBits+rank)*rankedPlaces + n
}

// placeOf returns the place of a ticket by the byte that is locked for it.
func placeOf(at int64) (place int64) {
	at -= rankedLock
	rank, n := at/rankedPlaces&(1<<rankBits-1), at%rankedPlaces
	return claim.FirstPlace(backend.Priority(math.MaxInt16-rank)) + n
}

// numberOf returns the number of a place among those of its priority.
func numberOf(place int64) int64 { return place - claim.FirstPlace(claim.PriorityOf(place)) }

// join adds a ticket behind all of the same priority, and returns its place.
func (t *ticketFile) join(queue uint32, p backend.Priority) (place int64, err error) {
	if p == 0 {
		n, err := t.take(queue)
		return int64(n), err
	}
	n, err := t.lastRanked(queue, p)
	if err != nil {
		return 0, err
	}
	for range placeTries {
		if n++; n >= rankedPlaces {
			return 0, errors.New("the places of this priority are used up until no process waits")
		}
		switch err := t.lockByte(rankedByte(queue, p, n), unix.F_WRLCK); {
		case err == nil:
			return claim.FirstPlace(p) + n, nil
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES):
			return 0, err
		}
	}
	return 0, fmt.Errorf("%d places were taken by others", placeTries)
}

// lastRanked returns the number of the last ticket of a priority, or of the last that was passed over. If no process
// waits with that priority, numbers begin again sooner or later.
func (t *ticketFile) lastRanked(queue uint32, p backend.Priority) (last int64, err error) {
	for {
		at, found, err := t.firstLock(rankedByte(queue, p, last+1), rankedByte(queue, p, rankedPlaces-1))
		if err != nil {
			return 0, err
		}
		if !found {
			break
		}
		last = at - rankedByte(queue, p, 0)
	}
	passed, err := t.passed(queue)
	if err != nil {
		return 0, err
	}
	before := passedIn(passed, p)
	if last == 0 && before > rankedPlaces/2 {
		return 0, t.writePassed(queue, slices.DeleteFunc(passed, func(place int64) bool { return claim.PriorityOf(place) == p }))
	}
	return max(last, before), nil
}

// leave deletes a ticket of this process.
func (t *ticketFile) leave(queue uint32, place int64) error {
	if p := claim.PriorityOf(place); p != 0 {
		return t.lockByte(rankedByte(queue, p, numberOf(place)), unix.F_UNLCK)
	}
	return t.unlockTicket(queue, uint32(place))
}

// pass makes the tickets of the same priority up to a place no longer count.
func (t *ticketFile) pass(queue uint32, place int64) error {
	p := claim.PriorityOf(place)
	if p == 0 {
		return t.passOver(queue, uint32(place))
	}
	passed, err := t.passed(queue)
	if err != nil || passedIn(passed, p) >= numberOf(place) {
		return err
	}
	passed = slices.DeleteFunc(passed, func(other int64) bool { return claim.PriorityOf(other) == p })
	return t.writePassed(queue, append(passed[max(0, len(passed)-passedKept+1):], place))
}

// counts reports whether a ticket at a place was not passed over.
func (t *ticketFile) counts(queue uint32, place int64) (bool, error) {
	if p := claim.PriorityOf(place); p != 0 {
		passed, err := t.passed(queue)
		return passedIn(passed, p) < numberOf(place), err
	}
	_, passed, err := t.counters(queue)
	return int64(passed) < place, err
}

// head returns the first place before the given one at which another process has a ticket that counts.
func (t *ticketFile) head(queue uint32, before int64) (place int64, found bool, err error) {
	p, n := claim.PriorityOf(before), min(numberOf(before), rankedPlaces)
	if p > 0 {
		return t.headRanked(queue, rankedByte(queue, math.MaxInt16, 1), rankedByte(queue, p, n-1))
	}
	if place, found, err = t.headRanked(queue, rankedByte(queue, math.MaxInt16, 1), rankedByte(queue, 1, rankedPlaces-1)); found || err != nil {
		return place, found, err
	}
	_, passed, err := t.counters(queue)
	if err != nil {
		return 0, false, err
	}
	last := uint32(math.MaxUint32)
	if p == 0 {
		last = uint32(before - 1)
	}
	if first, found, err := t.first(queue, passed+1, last); found || err != nil || p == 0 {
		return int64(first), found, err
	}
	return t.headRanked(queue, rankedByte(queue, -1, 1), rankedByte(queue, p, n-1))
}

// headRanked returns the place of the first locked byte in an interval whose ticket counts.
func (t *ticketFile) headRanked(queue uint32, from, to int64) (place int64, found bool, err error) {
	var passed []int64
	for {
		at, found, err := t.firstLock(from, to)
		if err != nil || !found {
			return 0, false, err
		}
		if passed == nil {
			if passed, err = t.passed(queue); err != nil {
				return 0, false, err
			}
		}
		place := placeOf(at)
		p := claim.PriorityOf(place)
		if last := passedIn(passed, p); last >= numberOf(place) {
			from = rankedByte(queue, p, last+1)
			continue
		}
		return place, true, nil
	}
}

// passed returns the places in the notes of a queue, the latest last.
func (t *ticketFile) passed(queue uint32) ([]int64, error) {
	var note [8 * passedKept]byte
	if _, err := t.file.ReadAt(note[:], noteOf(queue)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	places := make([]int64, 0, passedKept)
	for i := range passedKept {
		if place := int64(binary.LittleEndian.Uint64(note[8*i:])); place != 0 {
			places = append(places, place)
		}
	}
	return places, nil
}

func (t *ticketFile) writePassed(queue uint32, places []int64) error {
	var note [8 * passedKept]byte
	for i, place := range places {
		binary.LittleEndian.PutUint64(note[8*i:], uint64(place))
	}
	_, err := t.file.WriteAt(note[:], noteOf(queue))
	return err
}

func noteOf(queue uint32) int64 { return firstNote + int64(queue)*noteBytes }

// passedIn returns up to which number the tickets of a priority were passed over.
func passedIn(passed []int64, p backend.Priority) (n int64) {
	for _, place := range passed {
		if claim.PriorityOf(place) == p {
			n = max(n, numberOf(place))
		}
	}
	return n
}
