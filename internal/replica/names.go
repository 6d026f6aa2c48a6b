package replica

import (
	"cmp"
	"container/list"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// names is who holds which name and who stands in line for it. It follows from the keys, and from the
// records beside them of what ended: keys change, notice looks at the changes, and this follows.
type names struct {
	lines map[string]*line
	// claims has the leases that a Claim made. Each stands in exactly one line, for as long as it lives.
	claims map[lessor.ID]*contender
	// recovering are the names of claims, until all keys have been read when the member starts.
	recovering map[lessor.ID]string
	// releasing are the leases of which a release is on its way into the log and through it, and how many.
	releasing map[lessor.ID]int
	// claiming are the claims of which one is on its way into the log and through it, by the lease they are to make.
	claiming map[lessor.ID]*again
	// free are the lines without anybody in them, which are remembered for their past, the longest free first.
	free *list.List
	// lately is a ring of the lines whose owner is remembered beside its record. Most names are not held for long,
	// and to read a record costs more than to write it.
	lately [rememberedOwners]*line
	next   int // in the ring
	// strange are keys that look like those of claims.
	strange strangers
	// forgotten is the greatest token of the names that were forgotten.
	forgotten int64

	// Of the change that is being noticed.
	touched []*line
	fresh   []freshValue
	left    []*contender
	orphans []lessor.ID // of claims whose keys are gone

	farewells farewells

	spareAgain []*again // len ≤ maxSpare

	record *logpb.Name  // scratch
	lease  *logpb.Lease // likewise
	drafts drafts       // what is remembered of all this, as far as it is not in its place on the disk
}

// line is one name. The contender with the lowest create revision owns it.
type line struct {
	name  string
	queue []*contender // by create revision
	// shunned are keys not newer than the last owner's: those that were attached to their lease only later, or
	// were created together with it. They never own: tokens would not grow.
	shunned []*contender // likewise

	owner   *contender // whom the record has as the holder; the first of queue but for the change being noticed
	touched bool

	// current is what the record has of the owner, if the name was acquired lately; else the record is read.
	current    *logpb.Tenancy
	remembered int // its newest place in names.lately, if it has one

	ended    uint64 // tenancies
	last     int64  // the token of the last that ended
	pinned   *string
	revoked  *string
	revision int64 // of the newest change of who holds it
	// When it became free, and its place in names.free if it is.
	freed      int64
	freedOrder uint32
	place      *list.Element
}

// contender is a key NAME/LEASE that is attached to that very lease.
type contender struct {
	lease   lessor.ID
	created int64
	line    *line
	claimed bool // the lease was made by a Claim
}

// freshValue is what a contender's key was just set to.
type freshValue struct {
	contender *contender
	value     []byte
}

// rememberedOwners is for how many names.
const rememberedOwners = 1 << 12

// remember keeps what is known of the owner of a line in memory for a while.
func (n *names) remember(l *line, current *logpb.Tenancy) {
	if old := n.lately[n.next]; old != nil && old.remembered == n.next {
		old.current = nil
	}
	n.lately[n.next], l.remembered = l, n.next
	n.next = (n.next + 1) % rememberedOwners
	l.current = current
}

// strangers knows of which leases there may be a key NAME/LEASE, for some name, that is not attached to that
// very lease. It forgets nothing: in doubt the key is looked up. Leases of claims have random ids, and those
// that others use as numbers in their keys are few among them.
type strangers [1 << 14]uint64

func (s *strangers) place(id lessor.ID) (word int, bit uint64) {
	h := uint64(id) * 0x9e3779b97f4a7c15 // spreads numbers that are close to each other
	return int(h >> 50), 1 << (h >> 44 & 63)
}

func (s *strangers) add(id lessor.ID) {
	word, bit := s.place(id)
	s[word] |= bit
}

func (s *strangers) mayHave(id lessor.ID) bool {
	word, bit := s.place(id)
	return s[word]&bit != 0
}

func newNames() names {
	return names{
		lines: make(map[string]*line), claims: make(map[lessor.ID]*contender), releasing: make(map[lessor.ID]int), claiming: make(map[lessor.ID]*again), free: list.New(),
		drafts: newDrafts(), record: new(logpb.Name), lease: new(logpb.Lease),
	}
}

// OwnershipKey is the key that stands for a lease in the line of a name.
func OwnershipKey(name string, lease lessor.ID) []byte {
	key := make([]byte, 0, len(name)+1+16)
	key = append(append(key, name...), '/')
	return strconv.AppendInt(key, int64(lease), 16)
}

// contention divides an ownership key. It is false for every other key. One key stands for one lease: a number is
// written without zeros in front.
func contention(key []byte) (name []byte, lease lessor.ID, ok bool) {
	i, id := len(key)-1, uint64(0)
	for shift := 0; i >= 0 && key[i] != '/' && key[i] != '-'; i, shift = i-1, shift+4 {
		digit, isHex := hexDigit(key[i])
		if !isHex || shift > 60 {
			return nil, 0, false
		}
		id |= digit << shift
	}
	if i < 0 || i == len(key)-1 || key[i+1] == '0' {
		return nil, 0, false
	}
	limit, negative := uint64(math.MaxInt64), key[i] == '-'
	if negative {
		i, limit = i-1, limit+1
	}
	if i <= 0 || key[i] != '/' || id > limit {
		return nil, 0, false
	}
	if negative {
		id = -id
	}
	return key[:i], lessor.ID(id), true
}

// hexDigit is what a small hexadecimal digit stands for.
func hexDigit(c byte) (digit uint64, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10, true
	}
	return 0, false
}

// follow takes note of one change of the keys.
func (n *names) follow(change keyspace.Change) {
	for i := range change.Events {
		e := &change.Events[i]
		name, lease, ok := contention(e.KV.Key)
		switch {
		case !ok:
		case e.Type == keyspace.EventPut && e.KV.Lease == int64(lease):
			c := n.join(n.line(name), lease, e.KV.CreateRevision)
			n.fresh = append(n.fresh, freshValue{c, e.KV.Value})
			n.touch(c.line)
		default:
			if e.Type == keyspace.EventPut {
				n.strange.add(lease)
			}
			n.leave(n.lines[string(name)], lease)
		}
	}
	for _, key := range change.Ended {
		if name, lease, ok := contention([]byte(key)); ok {
			n.leave(n.lines[string(name)], lease)
		}
	}
}

// line returns the line of a name, a new one if there is none.
func (n *names) line(name []byte) *line {
	l := n.lines[string(name)]
	if l == nil {
		l = &line{name: string(name)}
		n.lines[l.name] = l
	}
	return l
}

// join puts a contender into a line, if it does not stand there yet.
func (n *names) join(l *line, lease lessor.ID, created int64) *contender {
	c := &contender{lease: lease, created: created, line: l}
	into := &l.queue
	if n.outdated(l, c) {
		into = &l.shunned
		n.unfree(l)
	}
	i, there := slices.BinarySearchFunc(*into, c, byCreated)
	if there {
		return (*into)[i]
	}
	*into = slices.Insert(*into, i, c)
	return c
}

// outdated says whether the name has, or had, an owner whose token is not smaller than a contender's would be.
func (n *names) outdated(l *line, c *contender) bool {
	switch {
	case l.owner == nil && l.ended == 0: // nothing is known of it, but maybe was
		return c.created <= n.forgotten
	case l.owner == nil || byCreated(l.owner, c) == 0:
		return c.created <= l.last
	}
	return c.created <= max(l.last, l.owner.created)
}

// crown makes the head of a line, which may be empty, its owner.
func (l *line) crown() {
	l.owner = l.head()
	for len(l.queue) > 1 && l.queue[1].created == l.owner.created {
		i, _ := slices.BinarySearchFunc(l.shunned, l.queue[1], byCreated)
		l.shunned = slices.Insert(l.shunned, i, l.queue[1])
		l.queue = slices.Delete(l.queue, 1, 2)
	}
}

func byCreated(a, b *contender) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.lease, b.lease))
}

// fewWaiters is how many move up at no cost worth saving.
const fewWaiters = 8

// leave takes a contender out of a line, if it stands there.
func (n *names) leave(l *line, lease lessor.ID) {
	c := n.find(l, lease)
	if c == nil {
		return
	}
	switch i, there := slices.BinarySearchFunc(l.queue, c, byCreated); {
	case there && i == 0 && len(l.queue) > fewWaiters:
		l.queue[0] = nil // what is cut off in front stays in memory
		l.queue = l.queue[1:]
		if len(l.queue) == fewWaiters {
			l.queue = slices.Clone(l.queue) // until here: most names are held again, by one at a time
		}
	case there:
		l.queue = slices.Delete(l.queue, i, i+1)
	default:
		l.shunned = slices.DeleteFunc(l.shunned, func(other *contender) bool { return other == c })
	}
	n.fresh = slices.DeleteFunc(n.fresh, func(f freshValue) bool { return f.contender == c })
	if c != l.owner {
		n.left = append(n.left, c)
	}
	if c.claimed {
		delete(n.claims, lease)
		n.orphans = append(n.orphans, lease)
	}
	n.touch(l)
}

func (n *names) touch(l *line) {
	if !l.touched {
		l.touched = true
		n.touched = append(n.touched, l)
	}
}

// find returns the contender that stands for a lease in a line, or nil. Where there may be very many in line,
// they are claims.
func (n *names) find(l *line, lease lessor.ID) *contender {
	if l == nil {
		return nil
	}
	if c := n.claims[lease]; c != nil && c.line == l {
		return c
	}
	for _, c := range slices.Backward(l.queue) { // a claim that has just joined is the last
		if c.lease == lease {
			return c
		}
	}
	for _, c := range l.shunned {
		if c.lease == lease {
			return c
		}
	}
	return nil
}

func (l *line) head() *contender {
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

// before returns how many stand before a contender.
func (l *line) before(c *contender) int {
	i, _ := slices.BinarySearchFunc(l.queue, c, byCreated)
	return i
}

// setFree puts a line that nobody stands in among those that are forgotten one day.
func (n *names) setFree(l *line) {
	before := n.free.Back()
	for before != nil && byFreed(before.Value.(*line), l) > 0 {
		before = before.Prev()
	}
	if before == nil {
		l.place = n.free.PushFront(l)
		return
	}
	l.place = n.free.InsertAfter(l, before)
}

func (n *names) unfree(l *line) {
	if l.place != nil {
		n.free.Remove(l.place)
		l.place = nil
	}
}

func byFreed(a, b *line) int {
	return cmp.Or(cmp.Compare(a.freed, b.freed), cmp.Compare(a.freedOrder, b.freedOrder), strings.Compare(a.name, b.name))
}

// farewells are the claims that ended lately, and why. Only this member's memory has them: they are for telling those
// who ask, and for turning away a claim that arrives after its own end. Every claim is looked for here, so what most
// do not have stands apart.
type farewells struct {
	why   map[lessor.ID]Why
	notes map[lessor.ID]string // of those that have one
	old   []lessor.ID          // a ring once it is full
	at    int
}

// maxFarewells is how many are kept.
const maxFarewells = 1 << 16

func (f *farewells) add(id lessor.ID, why Why, note string) {
	if f.why == nil {
		f.why, f.notes = make(map[lessor.ID]Why), make(map[lessor.ID]string)
	}
	if _, again := f.why[id]; !again {
		if len(f.old) < maxFarewells {
			f.old = append(f.old, id)
		} else {
			f.drop(f.old[f.at])
			f.old[f.at] = id
			f.at = (f.at + 1) % maxFarewells
		}
	}
	f.why[id] = why
	delete(f.notes, id)
	if note != "" {
		f.notes[id] = note
	}
}

func (f *farewells) drop(id lessor.ID) {
	delete(f.why, id)
	delete(f.notes, id)
}

// to tells why a claim ended, if it is remembered.
func (f *farewells) to(id lessor.ID) (why Why, note string, ok bool) {
	if why, ok = f.why[id]; ok {
		note = f.notes[id]
	}
	return why, note, ok
}
