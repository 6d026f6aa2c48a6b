package simulation

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// facts are what is true, as the world observed it.
type facts struct {
	w *world

	leaders  map[uint64]uint64   // by term
	newest   uint64              // the greatest of those terms
	entries  map[position]uint64 // sums of log entries, by index and term
	digests  map[uint64]digest   // of the state, by index
	furthest uint64              // index that was applied anywhere

	changes        map[int64]change // by revision
	values         map[string]int64 // the revision at which a value was put
	refused        map[string]bool  // values of puts that failed, by their answers
	newestRevision int64
	floor          int64            // the greatest revision that a client knows of
	keyFloor       map[string]int64 // the same for each key
	keys           map[string][]version
	txns           map[string]*call // by the value that they put
	guarded        map[string]int64 // by key that a name guards: the token of the last write

	leases        []*lease // those that have not ended, in order of grants
	byID          map[int64]*lease
	tenures       map[string][]tenure // by name, in order of tokens
	learnedTokens map[string][]int64  // by name: those that a client knows of, in order
	tokens        map[string]tenure   // by name: the newest that was seen at any member
	pinnedFor     map[string]tenure   // by the reason of a pin that was applied
	pins          map[string]pinned   // by name: acknowledged, and no client has requested its end
	unpins        map[string]*unpins
	marked        map[string]marked // by name
	applied       []uint64          // by member, before the step
	served        []uint64          // by member: the newest term in which it led and served

	heard    map[heardStamp]bool   // requests for promises that members received
	released map[releasedBy]uint64 // the greatest epoch
	duties   [][]duty              // by member
	helped   []help                // by member
}

type position struct{ index, term uint64 }

// digest is a checksum of the state, and the member that had it first.
type digest struct {
	sum   uint64
	first string
	text  string
}

// change is what a member published at a revision.
type change struct {
	sum  uint64
	puts []pair
	by   string
}

type pair struct{ key, value string }

// tenure is one tenure of a name, with the index of the entry that began it.
type tenure struct {
	index uint64
	token int64
	lease int64
}

func newFacts(w *world) facts {
	return facts{
		w: w, leaders: make(map[uint64]uint64), entries: make(map[position]uint64), digests: make(map[uint64]digest),
		changes: make(map[int64]change), values: make(map[string]int64), refused: make(map[string]bool),
		keyFloor: make(map[string]int64), byID: make(map[int64]*lease), tenures: make(map[string][]tenure),
		learnedTokens: make(map[string][]int64), keys: make(map[string][]version), txns: make(map[string]*call),
		guarded: make(map[string]int64), tokens: make(map[string]tenure), pinnedFor: make(map[string]tenure),
		pins: make(map[string]pinned), unpins: make(map[string]*unpins), marked: make(map[string]marked), served: make([]uint64, w.slots()),
		applied: make([]uint64, w.slots()), heard: make(map[heardStamp]bool), released: make(map[releasedBy]uint64), duties: make([][]duty, w.slots()),
		helped: make([]help, w.slots()),
	}
}

// started records a process that has opened its state.
func (f *facts) started(m *member) {
	f.applied[m.index], f.helped[m.index] = m.replica.Applied(), help{voted: f.helped[m.index].voted}
	f.compareStates(m)
	f.watchLeases(m, false)
}

// before records the events that a member is about to see.
func (f *facts) before(m *member, events []replica.Event) {
	f.applied[m.index] = m.replica.Applied()
	f.watchRenewals(m, events)
}

// stepped checks the effects of a member's step.
func (f *facts) stepped(m *member, now clock.Instant, events []replica.Event, effects []replica.Effect) {
	f.watchPromises(m, now, events, effects)
	for _, effect := range effects {
		if e, ok := effect.(replica.Publish); ok {
			f.published(m, e)
		}
	}
	f.watchElection(m)
	if m.replica.Counts().Yields > 0 {
		f.w.mark("a leader handed over because another member was better off")
	}
	if at := m.replica.Applied(); at != f.applied[m.index] {
		if at < f.applied[m.index] {
			f.w.fail("applied entries stay applied (I5)", "%s was at %d and is at %d", m.name, f.applied[m.index], at)
		}
		f.furthest = max(f.furthest, at)
		f.compareStates(m)
		f.watchLeases(m, slices.ContainsFunc(events, func(e replica.Event) bool { _, installed := e.(replica.Installed); return installed }))
	}
	f.watchLeadership(m)
	f.watchAnswers(m, effects)
}

func (f *facts) watchElection(m *member) {
	leader, term := m.replica.Leader()
	if leader != m.id {
		return
	}
	first, known := f.leaders[term]
	if !known {
		f.leaders[term] = m.id
		f.newest = max(f.newest, term)
		f.w.note(m.name, "leads in term", term, 0)
		if len(f.leaders) > 1 {
			f.w.mark("the leader changed")
			f.markChange()
		}
	} else if first != m.id {
		f.w.fail("one leader in a term (I5)", "in term %d both m%d and %s lead", term, first, m.name)
	}
}

func (f *facts) markChange() {
	for _, c := range f.w.clients {
		for _, call := range c.calls {
			if call.kind == renewing {
				f.w.mark("a renewal was under way when the leader changed")
			}
		}
	}
}

// sent records a message between members.
func (f *facts) sent(from, to *member, message replica.Message) {
	w, r := f.w, message.Raft
	if len(message.Renewals) > 0 {
		w.mark("a renewal was forwarded")
	}
	if message.Lease.Request != nil && message.Lease.Request.Epoch > 1 {
		w.mark("a leader continued in another epoch")
	}
	if r == nil {
		if message.Lease.Release != nil {
			w.mark("a release was sent to all members")
		}
		return
	}
	switch r.GetType() {
	case raftpb.MsgApp:
		f.compareEntries(from, r.GetEntries())
	case raftpb.MsgVote:
		if message.Lease.Release != nil {
			w.mark("a release went with a request for a vote")
		}
	case raftpb.MsgHeartbeat:
		if len(r.GetContext()) > 0 {
			w.mark("a round of messages confirmed answers")
		}
	case raftpb.MsgReadIndexResp:
		w.mark("a leader answered a follower's read from its lease")
	}
}

// compareEntries checks that an entry of an index and a term is the same everywhere.
func (f *facts) compareEntries(m *member, entries []*raftpb.Entry) {
	for _, e := range entries {
		at, sum := position{e.GetIndex(), e.GetTerm()}, hashBytes(e.GetData())
		if known, ok := f.entries[at]; ok && known != sum {
			f.w.fail("logs match (I5)", "%s sends an entry %d of term %d that differs from one sent before", m.name, at.index, at.term)
		}
		f.entries[at] = sum
	}
}

// compareStates checks that the state at an index is the same everywhere.
func (f *facts) compareStates(m *member) {
	at := m.replica.Applied()
	sum, text := f.stateOf(m)
	known, ok := f.digests[at]
	if !ok {
		f.digests[at] = digest{sum, m.name, text}
	} else if known.sum != sum {
		f.w.fail("the same state at the same index (I5)", "at index %d %s has\n%s\nand %s had\n%s", at, m.name, text, known.first, known.text)
	}
}

// stateOf returns a checksum and a text of a member's leases, names and revision. Keys are not included: publishedChange
// compares them as they change.
func (f *facts) stateOf(m *member) (uint64, string) {
	r := m.replica
	leases := r.Lessor().Leases()
	slices.SortFunc(leases, lessorOrder)
	policy := r.Access().Load()
	some, roles := policy.User("some"), 0
	if some != nil {
		roles = len(some.Roles)
	}
	text := fmt.Appendf(nil, "revision %d, auth revision %d, some has %d roles\n", r.Store().Revision(), policy.Revision(), roles)
	for _, l := range leases {
		text = fmt.Appendf(text, "lease %d of %v for %v, %d items, cleared %v", l.ID, l.Generation, l.TTL, l.Items, l.Cleared)
		text = fmt.Appendf(text, ", checkpointed %v %v, pinned %v, renewal refused %v\n", l.Checkpointed, l.Remaining, l.Pinned, l.RenewalRefused)
	}
	names := r.Names()
	f.checkTokens(m, names)
	for _, n := range names {
		text = fmt.Appendf(text, "%s held %v by %d with token %d, %d wait, revoked %v, finished %v, revision %d\n",
			n.Name, n.Held, n.Lease, n.Token, n.Waiting, n.Revoked != nil, n.Finished, n.Revision)
	}
	return hashBytes(text), string(text)
}

// published records the changes that a member applied.
func (f *facts) published(m *member, p replica.Publish) {
	for _, c := range p.Changes {
		f.publishedChange(m, c)
	}
	for _, c := range p.Names {
		if c.Kind == ownership.Acquired {
			f.acquired(m, c)
		}
		f.pinnedAt(c)
		f.expired(c)
	}
}

func (f *facts) publishedChange(m *member, c keyspace.Change) {
	made := change{sum: 1, by: m.name}
	for _, e := range c.Events {
		for _, n := range []uint64{
			uint64(e.Type), hashBytes(e.KV.Key), hashBytes(e.KV.Value), uint64(e.KV.ModRevision),
			uint64(e.KV.CreateRevision), uint64(e.KV.Version), uint64(e.KV.Lease),
		} {
			made.sum = made.sum*0x100000001b3 ^ n
		}
		if e.Type == keyspace.EventPut {
			made.puts = append(made.puts, pair{string(e.KV.Key), string(e.KV.Value)})
		}
	}
	for _, key := range c.Ended {
		made.sum = made.sum*0x100000001b3 ^ hashString(key)
	}
	known, ok := f.changes[c.Revision]
	if ok {
		if known.sum != made.sum {
			f.w.fail("the same change at the same revision (I5, I6)", "at revision %d %s published %v, and %s before it %v",
				c.Revision, m.name, made.puts, known.by, known.puts)
		}
		return
	}
	if c.Revision != f.newestRevision+1 && f.newestRevision != 0 {
		f.w.fail("revisions follow each other (I5)", "%s published %d after %d", m.name, c.Revision, f.newestRevision)
	}
	f.newestRevision = c.Revision
	f.changes[c.Revision] = made
	f.checkOnce(m, c.Revision, made)
	f.watchMarks(m, c)
	f.follow(m, c)
	for _, p := range made.puts {
		f.values[p.value] = c.Revision
		if f.refused[p.value] {
			f.w.fail("a request that failed has changed nothing", "the put of %q failed by its answer, and is at revision %d", p.value, c.Revision)
		}
	}
}

// acquired records a new tenure of a name. A former leader may publish a tenure long after other members have published
// later ones.
func (f *facts) acquired(m *member, c ownership.Change) {
	name, got := c.State.Name, tenure{c.Index, c.State.Token, int64(c.State.Lease)}
	all := f.tenures[name]
	i, known := slices.BinarySearchFunc(all, got, func(a, b tenure) int { return cmp.Compare(a.token, b.token) })
	if !known {
		all = slices.Insert(all, i, got)
		f.tenures[name] = all
		if len(all) > 1 {
			f.w.mark("a name got another holder")
		}
		f.checkOrder(m, c)
	}
	if all[i] != got || i > 0 && all[i-1].index > got.index || i+1 < len(all) && all[i+1].index < got.index {
		f.w.fail("tokens of a name rise", "%s hands %s to lease %d with token %d at index %d, among %+v", m.name, name, got.lease, got.token, got.index, all)
	}
}

// hashAll returns a checksum of everything that can be read of a member's keys.
func (m *member) hashAll() string {
	result, err := m.replica.Store().Hash(context.Background())
	m.must(err)
	return fmt.Sprintf("%x of revisions %d to %d", result.Hash, result.Compact, result.Revision)
}

// sequence encodes a number as a value.
func sequence(n uint64) string { return string(binary.AppendUvarint([]byte{'v'}, n)) }
