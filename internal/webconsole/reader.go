package webconsole

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// How the reader reads.
const (
	// roundInterval is the time between two readings of the names on open pages.
	roundInterval = time.Second
	// leastRest is the shortest time between two rounds.
	leastRest = 50 * time.Millisecond
	// surveyShare bounds the work for surveys: the reader rests for this many times as long as the last one took.
	surveyShare = 10
	listPage    = 1000
	// surveySlice bounds the part of a survey in one round, so that open pages have news while a long list is read.
	surveySlice = time.Second
	// mostNames is how many names the console keeps. 1,000,000 take about 400 MB.
	mostNames = 1_000_000
	// mostFresh is how many names of open pages are read in one round, and mostDetails how many histories.
	mostFresh, mostDetails = 200, 20
	mostRecent             = 50
	// mostReasons is how many ended tenures of one survey have their reasons looked up.
	mostReasons = 32
	// historyLimit is how many tenures of a name the console shows.
	historyLimit = 20
	// interestLasts is for how long the reader goes on after the last request for a page.
	interestLasts = 15 * time.Second
	// roundLimit bounds one round. longestPause is the longest time between two rounds of a store in trouble.
	roundLimit   = 30 * time.Second
	longestPause = 15 * time.Second
)

// want is what a page shows beyond the survey.
type want struct {
	name   string
	detail bool
	topic  topic // if it is not noTopic, the want is about no name
}

// reader is the one goroutine that reads the store, and what it knows.
type reader struct {
	store backend.Backend
	clock func() clock.Instant
	day   func() time.Time

	// Only the goroutine of run uses these fields.
	rings     rings
	surveyAt  clock.Instant      // when the next survey is due
	foreignAt clock.Instant      // when the next reading of locks of other programs is due
	listing   *survey.Collection // the survey that is being read; nil if none
	fails     int                // failed rounds since the last that succeeded

	wake chan struct{} // has room for one

	mu       sync.Mutex
	known    *knowledge    // never nil
	changed  chan struct{} // closed when known is replaced
	rounds   uint64        // rounds that have begun
	done     uint64        // the newest round that has ended
	viewers  int           // open pages
	wanted   map[want]int  // by how many open pages
	due      bool          // a survey is due before its time
	interest clock.Instant // when the last page was asked for
	asked    map[want]clock.Instant
	turn     int // where the next round begins among the wanted names, if they are too many for one
}

func newReader(cfg Config) *reader {
	return &reader{
		store: cfg.Store, clock: cfg.Now, day: cfg.Day, rings: newRings(cfg.Now()), wake: make(chan struct{}, 1),
		known: &knowledge{store: factsOf(cfg)}, changed: make(chan struct{}),
		wanted: make(map[want]int), asked: make(map[want]clock.Instant),
	}
}

// run reads the store while there is interest, until ctx ends.
func (r *reader) run(ctx context.Context) {
	for {
		wants, interested := r.beginRound()
		if !interested {
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		began := r.clock()
		r.round(ctx, wants)
		rest := leastRest
		if r.known.survey != nil { // else pages wait for the first one; only this goroutine replaces known
			rest += r.clock().Elapsed(began) // so that requests for pages leave the store half of the time
		}
		pause := r.pause()
		if r.listing != nil {
			pause = rest
		}
		if !sleep(ctx, rest, nil) || !sleep(ctx, pause-rest, r.wake) {
			return
		}
	}
}

// sleep waits for d, or for wake, and reports whether ctx lasts.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// pause returns the time until the next round.
func (r *reader) pause() time.Duration {
	return min(longestPause, roundInterval<<min(r.fails, 8))
}

// beginRound returns what the pages want, and whether there is any page.
func (r *reader) beginRound() (wants []want, interested bool) {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.viewers == 0 && (r.interest == clock.Instant{} || now.Elapsed(r.interest) > interestLasts) {
		clear(r.asked)
		return nil, false
	}
	if r.due {
		r.due, r.surveyAt = false, clock.Instant{}
	}
	r.rounds++
	for w, at := range r.asked {
		if now.Elapsed(at) > interestLasts {
			delete(r.asked, w)
		} else {
			wants = append(wants, w)
		}
	}
	for w := range r.wanted {
		if _, twice := r.asked[w]; !twice {
			wants = append(wants, w)
		}
	}
	slices.SortFunc(wants, compareWants)
	if len(wants) > mostFresh { // the next round begins where this one ends
		r.turn %= len(wants)
		wants = append(wants[r.turn:], wants[:r.turn]...)
		r.turn += mostFresh
	}
	return wants, true
}

func compareWants(a, b want) int {
	switch {
	case a.topic != b.topic:
		return strings.Compare(string(a.topic), string(b.topic))
	case a.name < b.name, a.name == b.name && b.detail && !a.detail:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// round reads the store once and publishes what it says.
func (r *reader) round(ctx context.Context, wants []want) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	next := *r.known // only this goroutine replaces it
	err := r.read(ctx, &next, wants)
	if err != nil {
		r.fails++
		next.trouble = backend.Printable(err.Error())
	} else {
		r.fails, next.trouble, next.readAt = 0, "", r.day()
	}
	if slices.ContainsFunc(wants, func(w want) bool { return w.topic != noTopic }) {
		r.know(next, false) // what follows may take long, and most pages do not wait for it
	}
	r.readServer(ctx, &next, wants)
	r.readForeign(ctx, &next, wants)
	r.know(next, true)
}

// know publishes what is known. whole reports that all that was wanted has been read.
func (r *reader) know(k knowledge, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = &k
	if whole {
		r.done = r.rounds
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *reader) read(ctx context.Context, next *knowledge, wants []want) error {
	if r.listing == nil && (next.survey == nil || r.clock().Remaining(r.surveyAt) <= 0) {
		r.listing = survey.Collect(r.clock(), next.store.most)
	}
	if r.listing != nil {
		whole, err := r.list(ctx)
		if err != nil {
			r.listing = nil
			return fmt.Errorf("list the names: %w", err)
		}
		if whole {
			r.publish(ctx, next, r.listing.Finish(r.clock()))
			r.listing = nil
		}
	}
	return r.readWanted(ctx, next, wants)
}

// list continues the survey for one slice, and reports whether it is whole.
func (r *reader) list(ctx context.Context) (whole bool, err error) {
	for began := r.clock(); r.clock().Elapsed(began) < surveySlice; {
		page, err := r.store.List(ctx, "", r.listing.Last(), listPage)
		if err != nil {
			return false, err
		}
		room, err := r.listing.Add(page, r.clock())
		if err != nil {
			return false, err
		}
		if !room || len(page) < listPage {
			return true, nil
		}
	}
	return false, nil
}

// publish makes a survey known, and what has changed since the last one.
func (r *reader) publish(ctx context.Context, next *knowledge, s *survey.Survey) {
	var changes []happening
	if next.survey != nil {
		changes = r.explain(ctx, survey.Compare(next.survey, s))
	}
	now := r.clock()
	r.rings.record(s, changes, now)
	next.survey, next.plots, next.fresh, next.longest = s, r.rings.plots(now), nil, s.Longest(overviewQueues)
	recent := slices.Concat(changes, next.recent)
	next.recent = recent[:min(len(recent), mostRecent)]
	r.surveyAt = now.Add(max(roundInterval, surveyShare*s.End.Elapsed(s.Began)))
}

// explain looks up why tenures ended. Reasons that the store does not tell stay empty.
func (r *reader) explain(ctx context.Context, changes []survey.Change) []happening {
	historian, err := backend.Can[backend.Historian](r.store)
	looked := 0
	found := make([]happening, 0, min(len(changes), mostRecent))
	for _, c := range changes {
		h := happening{name: c.Is.Name, at: r.day(), ended: c.Ended, began: c.Began, was: c.Was.Holder, holder: c.Is.Holder, token: c.Is.Token}
		if !h.began {
			h.token = c.Was.Token
		}
		if h.ended && err == nil && looked < mostReasons {
			looked++
			h.why = reasonOf(ctx, historian, c.Was)
		}
		found = append(found, h)
	}
	return found
}

// reasonOf returns why the tenure of a name ended, or "" if the store does not tell.
func reasonOf(ctx context.Context, historian backend.Historian, was survey.Name) backend.Reason {
	past, err := historian.History(ctx, was.Name, historyLimit)
	if err != nil {
		return ""
	}
	for _, t := range past {
		if t.Token == was.Token {
			return t.Why
		}
	}
	return ""
}

// readWanted reads the names of open pages.
func (r *reader) readWanted(ctx context.Context, next *knowledge, wants []want) error {
	fresh, details := make(map[string]survey.Name, len(wants)), make(map[string]detail)
	surveyed, read := next.fresh == nil, 0 // in this round
	for _, w := range wants[:min(len(wants), mostFresh)] {
		if w.topic != noTopic {
			continue // readServer has read it
		}
		if !surveyed || w.detail {
			i, err := r.store.Get(ctx, w.name)
			switch {
			case err == nil:
				fresh[w.name] = survey.Observe(i, r.clock())
			case ctx.Err() != nil || !aboutOneName(err):
				return fmt.Errorf("read %s: %w", backend.Printable(w.name), err)
			}
		}
		if !w.detail {
			continue
		}
		d, old := next.details[w.name]
		switch {
		case read < mostDetails:
			read++
			d = r.readDetail(ctx, w.name)
		case !old:
			continue // until the next round
		}
		details[w.name] = d
	}
	next.fresh, next.details = fresh, details
	return nil
}

// get returns what is known, after a reading of what the page wants, if that is not known already. It waits for at most
// as long as ctx lasts. If the store is in trouble, the knowledge says so.
func (r *reader) get(ctx context.Context, wants []want) (*knowledge, error) {
	r.mu.Lock()
	now := r.clock()
	r.interest = now
	for _, w := range wants {
		if len(r.asked) < mostFresh {
			r.asked[w] = now
		}
	}
	after := r.rounds // a round that begins from now on reads what is wanted
	for first := true; ; first = false {
		known, changed, done := r.known, r.changed, r.done
		if enough := known.satisfies(wants) && r.recent(known, now); enough || done > after && (known.survey != nil || known.trouble != "") {
			r.mu.Unlock()
			return known, nil
		}
		r.mu.Unlock()
		if first {
			r.wakeUp()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r.mu.Lock()
	}
}

// recent reports whether a knowledge is as new as an open page would show. The next survey follows when the reader has
// rested, and takes about as long as the last one. The caller holds the lock.
func (r *reader) recent(k *knowledge, now clock.Instant) bool {
	if k.trouble != "" || k.survey == nil {
		return false
	}
	s := k.survey
	return r.viewers > 0 || now.Elapsed(s.End) <= max(2*roundInterval, (surveyShare+1)*s.End.Elapsed(s.Began))
}

// satisfies reports whether a knowledge has the details that are wanted.
func (k *knowledge) satisfies(wants []want) bool {
	for _, w := range wants {
		if _, ok := k.details[w.name]; w.detail && !ok || !k.covers(w.topic) {
			return false
		}
	}
	return true
}

// covers reports whether a knowledge has what is to know about a topic.
func (k *knowledge) covers(t topic) bool {
	return t == noTopic || t == foreignTopic && k.foreign != nil || t != foreignTopic && !k.store.server || t == clusterTopic && k.cluster != nil || t == auditTopic && k.audit != nil
}

func (r *reader) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// open counts an open page that wants names, and returns a function that ends it.
func (r *reader) open(wants []want) (end func()) {
	r.mu.Lock()
	r.viewers++
	for _, w := range wants {
		r.wanted[w]++
	}
	r.mu.Unlock()
	r.wakeUp()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.viewers--
		for _, w := range wants {
			if r.wanted[w]--; r.wanted[w] == 0 {
				delete(r.wanted, w)
			}
		}
	}
}

// latest returns what is known, and a channel that is closed when more is.
func (r *reader) latest() (*knowledge, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known, r.changed
}

// again makes the next round take a survey, because this console has changed a name.
func (r *reader) again() {
	r.mu.Lock()
	r.due = true
	r.mu.Unlock()
	r.wakeUp()
}

// aboutOneName reports whether an error concerns a name alone, and not the store.
func aboutOneName(err error) bool {
	return errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrInvalid)
}
