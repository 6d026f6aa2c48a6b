package peer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

const (
	// maxGuests bounds the callers that are in no list of members and have a link all the same.
	maxGuests = 16
	// guestIdle is for how long the link to such a caller stays after its last call.
	guestIdle = 30 * time.Second
)

// directory is what a transport knows of the other members. It is never changed, but replaced.
type directory struct {
	addresses map[uint64]string // of all members, this one among them
	// links are those to the other members and to guests. A guest is a member that has called although this member does
	// not know it yet, or that was removed and may not know that yet.
	links map[uint64]*link
}

// link returns the link to a member; nil if there is none.
func (t *Transport) link(member uint64) *link { return t.known.Load().links[member] }

// self returns the address at which the others reach this member.
func (t *Transport) self() string { return t.known.Load().addresses[t.cfg.Self] }

// peerAddress returns the address, as host:port, of a peer URL.
func peerAddress(url string) string {
	for _, scheme := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(url, scheme); ok {
			url = rest
		}
	}
	return strings.TrimSuffix(url, "/")
}

// SetMembers says which members the cluster has from now on. It opens connections to new members, replaces those to
// members with another address, and closes those to removed members after a while. It does not wait for that. Of several
// peer URLs of a member the first counts. A member whose address cannot be used has no connection; the log says why.
func (t *Transport) SetMembers(members []roster.Member) {
	addresses := make(map[uint64]string)
	for _, m := range members {
		if len(m.PeerURLs) > 0 {
			addresses[m.ID] = peerAddress(m.PeerURLs[0])
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.list = members
	t.follows.Store(true)
	if addresses[t.cfg.Self] == "" { // a removed member keeps its own until it ends
		addresses[t.cfg.Self] = t.self()
	}
	if err := t.connectTo(addresses); err != nil {
		t.cfg.Logger.Error("a member cannot be connected: correct its peer URL with leasekeeper member update", "error", err)
	}
}

// connectTo makes links to the members with these addresses, and guests of the others. The caller holds mu.
func (t *Transport) connectTo(addresses map[uint64]string) error {
	before := t.known.Load()
	after := &directory{maps.Clone(addresses), maps.Clone(before.links)}
	if after.links == nil {
		after.links = make(map[uint64]*link)
	}
	var errs []error
	for _, member := range slices.Sorted(maps.Keys(addresses)) {
		l := after.links[member]
		if l != nil && (addresses[member] == l.address || addresses[member] == before.addresses[member]) {
			l.guest = time.Time{}
			continue
		}
		if member == t.cfg.Self {
			continue
		}
		if err := t.replaceLink(after, member, addresses[member]); err != nil {
			errs = append(errs, err)
		}
	}
	taken := make(map[string]bool)
	for _, address := range addresses {
		taken[address] = true
	}
	for member, l := range after.links { // order: each link is handled by itself
		switch {
		case addresses[member] != "":
		case t.past(l, taken[l.address]):
			delete(after.links, member)
			t.retire(l)
		case l.guest.IsZero():
			l.guest = time.Now()
		}
	}
	t.known.Store(after)
	return errors.Join(errs...)
}

// guestGrace is how long a member that is in no list keeps its link at least, after its welcome as a guest and after each
// call: one of its two streams may have ended while the other one begins.
const guestGrace = time.Second

// past reports whether the link to a member that is in no list needs no place among the guests: the member has no connection
// in either direction, and has not called for long, or its address is taken by another member. A member that starts hears of
// all past members one after the other, as far back as its log goes. If a past member still runs and calls, it is welcome
// as any unknown caller is. The caller holds mu.
func (t *Transport) past(l *link, taken bool) bool {
	s := l.status()
	quiet := l.quiet(s)
	if s.Connected || l.inbound.urgent.taken() || l.inbound.bulk.taken() || quiet < guestGrace {
		return false
	}
	return taken || quiet >= t.cfg.guestIdle
}

// quiet returns how long ago a member was welcomed as a guest, or called, whichever is later. The caller holds mu of the
// transport.
func (l *link) quiet(s PeerStatus) time.Duration {
	return min(time.Since(l.guest), time.Since(s.Heard))
}

// replaceLink puts a new link into a directory that nobody else has yet. The caller holds mu.
func (t *Transport) replaceLink(d *directory, member uint64, address string) error {
	former := d.links[member]
	var in *inbound
	if former != nil {
		in = former.inbound
	}
	if !validAddress(address) {
		return fmt.Errorf("peer: %q is not the address of the member %x: write HOST:PORT", address, member)
	}
	l, err := t.newLink(member, address, in)
	if err != nil {
		return fmt.Errorf("peer: %s is not the address of a member: %w", address, err)
	}
	if former != nil {
		t.retire(former)
	}
	d.links[member] = l
	if t.started {
		t.startLink(l)
	}
	return nil
}

// startLink starts the goroutines of a link. The caller holds mu, and the transport is not closed.
func (t *Transport) startLink(l *link) {
	t.streams.Go(func() {
		defer close(l.ran)
		l.run(l.ctx)
	})
	t.serving.Go(func() { l.reportLost(l.ctx) })
}

// retire ends a link that is in no directory any longer. Calls on it are cut off. The caller holds mu, and the transport
// is not closed.
func (t *Transport) retire(l *link) {
	l.cancel()
	if !t.started {
		l.close()
		return
	}
	t.serving.Go(func() {
		<-l.ran
		l.close()
	})
}

// errTooManyGuests says that a caller is unknown and finds no room.
var errTooManyGuests = fmt.Errorf("more than %d callers are in no list of members: the caller must wait until this member has caught up with the list", maxGuests)

// welcome returns the link to a caller that has proven to be a member. It makes one if the caller is unknown.
// listed says that it has proven to be at the address in the list.
func (t *Transport) welcome(member uint64, address string, listed bool) (*link, error) {
	if l := t.link(member); l != nil {
		if t.follows.Load() {
			l.calledFrom(address, listed)
		}
		return l, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.known.Load()
	l := known.links[member]
	switch {
	case t.closed:
		return nil, errClosing
	case l != nil: // since just now
		return l, nil
	case !validAddress(address):
		return nil, fmt.Errorf("the caller is in no list of members, and does not say where it is reached (%q): start the newer program on it", address)
	case len(known.guests()) >= maxGuests:
		return nil, errTooManyGuests
	}
	after := &directory{known.addresses, maps.Clone(known.links)}
	if err := t.replaceLink(after, member, address); err != nil {
		return nil, err
	}
	after.links[member].guest = time.Now()
	t.known.Store(after)
	t.cfg.Logger.Info("a member calls that the list of members does not have", "member", memberID(member), "address", address)
	return after.links[member], nil
}

// calledFrom notes the address at which a calling member says that it is. If that is not the address of the link, one of
// the two sides lacks the newest list of members. So the link tries both in turn until it connects. listed says that the
// caller has proven to be at the address in the list.
func (l *link) calledFrom(address string, listed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case address == l.address || address == "":
		l.other, l.useOther, l.proven = "", false, false
	case validAddress(address):
		l.proven = listed || l.proven && l.other == address
		l.other = address
	}
}

// turn chooses the address of the next attempt to connect conn. It is the other one if the last attempt did not lead to a
// session. The caller holds l.mu.
func (l *link) turn() {
	if !l.reached && l.other != "" {
		l.useOther = !l.useOther
	}
	l.reached = false
}

// target returns the address at which conn is or is tried. The caller holds l.mu.
func (l *link) target() string {
	if l.useOther {
		return l.other
	}
	return l.address
}

// callsTarget returns the address for the calls of clients. They do not follow a caller to an address of which the list
// knows nothing. The caller holds l.mu.
func (l *link) callsTarget() string {
	if l.useOther && !l.proven {
		return l.address
	}
	return l.target()
}

// hasOther reports whether the link tries two addresses in turn.
func (l *link) hasOther() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.other != ""
}

// guests returns the links to guests.
func (d *directory) guests() (list []*link) {
	for member, l := range d.links { // order: they are counted, or each is looked at by itself
		if d.addresses[member] == "" {
			list = append(list, l)
		}
	}
	return list
}

// endIdleGuests closes the links to guests that no longer call, until the transport is closed.
func (t *Transport) endIdleGuests() {
	ticker := time.NewTicker(t.cfg.guestIdle / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.endGuests()
		case <-t.draining.Done():
			return
		}
	}
}

func (t *Transport) endGuests() {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.known.Load()
	after := &directory{known.addresses, maps.Clone(known.links)}
	for _, l := range known.guests() {
		if s := l.status(); t.closed || s.Listening || l.quiet(s) < t.cfg.guestIdle {
			continue
		}
		delete(after.links, l.member)
		t.retire(l)
	}
	t.known.Store(after)
}
