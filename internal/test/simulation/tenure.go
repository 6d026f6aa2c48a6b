package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// pinned is a pinned tenure, with the newest term at the time of the pin.
type pinned struct {
	tenure
	term uint64
}

// unpins counts the requests to unpin a name.
type unpins struct {
	asked int
	open  int // those with an unknown outcome, or without an answer yet
}

// transfer transfers a name that the client holds to the next in the queue, if there is one.
func (c *client) transfer() {
	if l := c.someHeld(); l != nil {
		l.transferring = true
		c.ask(c.anyMember(0.95), &call{kind: transferring, leases: []*lease{l}, event: replica.Request{Command: ownership.Transfer{Name: l.name, Lease: l.id}}})
	}
}

// pin pins any name. Its reason identifies the pin.
func (c *client) pin() {
	w := c.w
	w.puts++
	name := anyName(w)
	k := &call{kind: pinning, key: name, value: sequence(w.puts), unpins: *w.facts.unpinsOf(name)}
	k.event = replica.Request{Command: ownership.Pin{Name: name, Reason: k.value}}
	c.ask(c.anyMember(0.95), k)
}

func (c *client) unpin() {
	name := anyName(c.w)
	u := c.w.facts.unpinsOf(name)
	u.asked++
	u.open++
	delete(c.w.facts.pins, name)
	c.ask(c.anyMember(0.95), &call{kind: unpinning, key: name, event: replica.Request{Command: ownership.Unpin{Name: name}}})
}

// heardTransferred handles the acknowledgement of a transfer.
func (c *client) heardTransferred(k *call, token int64) {
	l := k.leases[0]
	c.w.facts.checkTransfer(k, l, token)
	l.ending, l.gone = true, true
	c.w.mark("a name was transferred")
}

// notTransferred handles the failure of a transfer.
func (c *client) notTransferred(k *call, err error) {
	l := k.leases[0]
	if errors.Is(err, ownership.ErrLost) {
		c.w.facts.checkGone(k, l)
		l.gone = true
	}
	if errors.Is(err, ownership.ErrPinned) {
		c.w.mark("a transfer of a pinned name was refused")
	}
	l.transferring = false
}

// checkTransfer checks that an acknowledged transfer has ended one tenure and begun that of the next in the queue.
func (f *facts) checkTransfer(k *call, l *lease, token int64) {
	all := f.tenures[l.name]
	i := slices.IndexFunc(all, func(t tenure) bool { return t.token == token })
	switch {
	case !l.ended:
		f.w.fail("a transfer ends the old tenure", "%s reports that %s is transferred to token %d, and no member has ended lease %d of token %d",
			k.member.name, l.name, token, l.id, l.token)
	case token <= l.token || i < 0 || i > 0 && all[i-1].token > l.token:
		f.w.fail("a name is transferred to the next in the queue", "%s reports that %s went from token %d to token %d; it was held by %+v",
			k.member.name, l.name, l.token, token, all)
	}
	f.learnedTenure(l.name, token)
}

func (f *facts) unpinsOf(name string) *unpins {
	u := f.unpins[name]
	if u == nil {
		u = new(unpins)
		f.unpins[name] = u
	}
	return u
}

// pinnedAt records a pin that a member has applied.
func (f *facts) pinnedAt(c ownership.Change) {
	if c.Kind == ownership.StatusChanged && c.State.Pinned != nil {
		f.pinnedFor[*c.State.Pinned] = tenure{c.Index, c.State.Token, int64(c.State.Lease)}
	}
}

// checkPinned checks that an acknowledged pin was applied. From then on the pin must stay, unless a client may have
// requested its end.
func (f *facts) checkPinned(k *call) {
	f.w.mark("a name was pinned")
	got, ok := f.pinnedFor[k.value]
	if !ok {
		f.w.fail("what is acknowledged is there (I6)", "%s acknowledges a pin of %s that no member has applied", k.member.name, k.key)
	}
	l := f.byID[got.lease]
	if k.unpins.open == 0 && f.unpinsOf(k.key).asked == k.unpins.asked && l != nil && !l.ended {
		f.pins[k.key] = pinned{got, f.newest}
	}
}

// checkPins checks that a member keeps the acknowledged pins that it has applied.
func (f *facts) checkPins(m *member) {
	for i := range namesOfClients {
		name := nthName(i)
		p, pinned := f.pins[name]
		lease, there := m.replica.Lessor().Lookup(lessor.ID(p.lease))
		if !pinned || !there || m.replica.Applied() < p.index {
			continue
		}
		if l := f.byID[p.lease]; l != nil && l.finishing != 0 {
			continue // a pin ends with the finish of its holder
		}
		if !lease.Pinned {
			f.w.fail("a pin that was acknowledged is kept", "%s has applied entry %d, which pinned %s for lease %d, and no longer has it pinned, though no client requested that",
				m.name, p.index, name, p.lease)
		}
		if f.newest > p.term {
			f.w.mark("a pin outlived its leader")
		}
	}
}

// checkPinnedEnd checks that a pinned lease does not expire, and that one that was unpinned has its whole TTL.
func (f *facts) checkPinnedEnd(l *lease, m *member) {
	w := f.w
	asked := l.ending || l.transferring
	if p, ok := f.pins[l.name]; ok && p.lease == int64(l.id) {
		if !asked {
			w.fail("a pinned lease does not end by time", "%s ends lease %d, which holds %s, pinned by entry %d", m.name, l.id, l.name, p.index)
		}
		delete(f.pins, l.name)
	}
	if lived := time.Duration(w.now - l.unpinned); l.unpinned != 0 && !asked && lived < w.drift.RelyRemote(l.ttl) {
		w.fail("a lease that was unpinned has its whole time", "%s ends lease %d of %v %v after it was unpinned", m.name, l.id, l.ttl, lived)
	}
}

// checkTokens checks that the token of a name never falls, and rises with each tenure.
func (f *facts) checkTokens(m *member, names []ownership.State) {
	at := m.replica.Applied()
	for _, n := range names {
		known, now := f.tokens[n.Name], tenure{at, n.Token, 0}
		if n.Held {
			now.lease = int64(n.Lease)
		}
		earlier, later := known, now
		if at < known.index {
			earlier, later = now, known
		}
		if later.token < earlier.token || later.token == earlier.token && later.lease != 0 && later.lease != earlier.lease && earlier.index > 0 {
			f.w.fail("tokens of a name rise", "%s has %s with %+v, and at another index it was %+v", m.name, n.Name, now, known)
		}
		if at > known.index {
			f.tokens[n.Name] = now
		}
	}
}
