package replica

import (
	"errors"
	"iter"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Operations on names. Their names are not empty; whatever else makes a good one is for who asks to see to.
type (
	// Claim asks for a name: for a lease and the key that stands for it in the line of the name, in one
	// revision. If somebody holds the name, one that does not wait changes nothing. The lease's id, which is
	// above 0, and the TTL are final. Asked again it tells what is there already. It is answered by
	// [Claimed].
	Claim struct {
		Lease  lessor.ID
		TTL    time.Duration
		Name   string
		Holder []byte // the value of the key; nobody may change it from then on
		Wait   bool
	}
	// Release ends the lease of a claim. It is answered by whether there was something to end.
	Release struct {
		Name  string
		Lease lessor.ID
	}
	// RevokeName ends the tenancy of a name's holder, whose token it names unless that is 0: when what was
	// promised to the holder has ended, or at once. It is answered by [RevokedName].
	RevokeName struct {
		Name  string
		Token int64
		Note  string
		Now   bool
	}
	// Transfer ends the lease of a claim if another is next in line. It is answered by the token of that.
	Transfer struct {
		Name  string
		Lease lessor.ID
	}
	// Pin keeps a name with its holder.
	Pin struct{ Name, Reason string }
	// Unpin ends that.
	Unpin struct{ Name string }
)

// Claimed is the answer to a [Claim]. Without a lease somebody else holds the name, which Current tells.
type Claimed struct {
	Lease   lessor.ID
	TTL     time.Duration
	Token   int64
	Before  int // how many are before this one in line; 0 if it holds the name
	Holder  []byte
	Current *NameState // of a claim that does not hold the name
}

// RevokedName is the answer to a [RevokeName].
type RevokedName struct {
	Token int64
	Left  time.Duration // until the name is free at the latest; 0 if it is
}

// What operations on names may fail with. Nothing was changed then.
var (
	ErrInvalidClaim = errors.New("a claim needs a name, a lease id above 0, and a TTL")
	ErrLeaseTaken   = errors.New("the lease id belongs to another request: choose one at random for each")
	ErrLost         = errors.New("the lease does not hold the name, and never will again")
	ErrNotHeld      = errors.New("nobody holds the name")
	ErrOtherToken   = errors.New("the name is held under another token")
	ErrPinned       = errors.New("the name is pinned to its holder: unpin it first")
	ErrNobodyWaits  = errors.New("nobody stands in line for the name")
)

// encodeNames returns nil for an operation that is none on names.
func encodeNames(op any) *logpb.Command {
	switch op := op.(type) {
	case Claim:
		return &logpb.Command{Op: &logpb.Command_Claim{Claim: &logpb.Claim{
			Id: int64(op.Lease), TtlNs: int64(op.TTL), Name: []byte(op.Name), Holder: op.Holder, Wait: op.Wait,
		}}}
	case Release:
		return &logpb.Command{Op: &logpb.Command_Release{Release: &logpb.Release{Name: []byte(op.Name), Id: int64(op.Lease)}}}
	case RevokeName:
		return &logpb.Command{Op: &logpb.Command_RevokeName{RevokeName: &logpb.RevokeName{
			Name: []byte(op.Name), Token: op.Token, Note: []byte(op.Note), Now: op.Now,
		}}}
	case Transfer:
		return &logpb.Command{Op: &logpb.Command_Transfer{Transfer: &logpb.Transfer{Name: []byte(op.Name), Id: int64(op.Lease)}}}
	case Pin:
		return &logpb.Command{Op: &logpb.Command_Pin{Pin: &logpb.Pin{Name: []byte(op.Name), Reason: []byte(op.Reason)}}}
	case Unpin:
		return &logpb.Command{Op: &logpb.Command_Unpin{Unpin: &logpb.Unpin{Name: []byte(op.Name)}}}
	}
	return nil
}

// applyNames executes a command on names.
func (r *Replica) applyNames(command *logpb.Command, at lessor.Position) (result any, err error, known bool) {
	known = true
	switch op := command.Op.(type) {
	case *logpb.Command_Claim:
		result, err = r.applyClaim(Claim{
			Lease: lessor.ID(op.Claim.Id), TTL: time.Duration(op.Claim.TtlNs), Name: string(op.Claim.Name),
			Holder: op.Claim.Holder, Wait: op.Claim.Wait,
		}, at)
	case *logpb.Command_Release:
		result, err = r.applyRelease(string(op.Release.Name), lessor.ID(op.Release.Id))
	case *logpb.Command_RevokeName:
		result, err = r.applyRevokeName(op.RevokeName)
	case *logpb.Command_Transfer:
		result, err = r.applyTransfer(string(op.Transfer.Name), lessor.ID(op.Transfer.Id))
	case *logpb.Command_Pin:
		err = r.applyPin(string(op.Pin.Name), string(op.Pin.Reason))
	case *logpb.Command_Unpin:
		err = r.applyUnpin(string(op.Unpin.Name), at)
	default:
		known = false
	}
	return result, err, known
}

func (r *Replica) applyClaim(op Claim, at lessor.Position) (any, error) {
	name, id, ttl := op.Name, op.Lease, op.TTL
	if name == "" || id <= 0 || ttl <= 0 || ttl > lessor.MaxTTL {
		return nil, ErrInvalidClaim
	}
	if c := r.names.claims[id]; c != nil {
		return r.claimedBefore(c, name, ttl, r.applying.writer)
	}
	if _, exists := r.lessor.Lookup(id); exists {
		return nil, ErrLeaseTaken
	}
	if l := r.names.lines[name]; l != nil && l.owner != nil && !op.Wait {
		return r.refused(l)
	}
	key := OwnershipKey(name, id)
	absent := r.surelyAbsent(id)
	if !absent {
		if there, err := r.applying.writer.Has(key); err != nil {
			return nil, err
		} else if there { // its create revision is no token
			return nil, ErrLeaseTaken
		}
	}
	if _, err := r.lessor.Grant(id, ttl, at, r.now); err != nil {
		return nil, err
	}
	r.counts.Granted++
	put := keyspace.PutRequest{Key: key, Value: op.Holder, Lease: int64(id), Absent: absent}
	if _, err := r.applying.writer.Put(put); err != nil {
		return nil, err
	}
	if err := r.notice(WhyDeleted, ""); err != nil {
		return nil, err
	}
	c := r.names.find(r.names.lines[name], id)
	c.claimed = true
	r.names.claims[id] = c
	r.writeLease(id)
	return r.claimed(c, op.Holder)
}

// surelyAbsent says that no key can be there that stands for a lease which is not there, in any line, so that it
// need not be looked for. A key NAME/LEASE is attached to that lease, and goes with it: at once, or, if the lease
// had many, when they are swept up. Or it is a strange one.
func (r *Replica) surelyAbsent(id lessor.ID) bool {
	return !r.sweeping && !r.names.strange.mayHave(id)
}

// claimed tells what became of a claim, whose key has that value.
func (r *Replica) claimed(c *contender, holder []byte) (any, error) {
	lease, _ := r.lessor.Lookup(c.lease)
	answer := Claimed{Lease: c.lease, TTL: lease.TTL, Token: c.created, Before: c.line.before(c), Holder: holder}
	if answer.Before == 0 {
		return answer, nil
	}
	current, err := r.nameStateWithHolder(c.line)
	answer.Current = &current
	return answer, err
}

// claimedBefore tells what became of a claim that is made again. Its key is read as the writer sees it.
func (r *Replica) claimedBefore(c *contender, name string, ttl time.Duration, writer *keyspace.Writer) (any, error) {
	lease, _ := r.lessor.Lookup(c.lease)
	if c.line.name != name || lease.TTL != ttl {
		return nil, ErrLeaseTaken
	}
	kv, err := writer.Get(OwnershipKey(name, c.lease))
	if err != nil {
		return nil, err
	}
	return r.claimed(c, kv.Value)
}

func (r *Replica) refused(l *line) (any, error) {
	current, err := r.nameStateWithHolder(l)
	if err != nil {
		return nil, err
	}
	return Claimed{Current: &current}, nil
}

// answerClaim answers a claim for which there must be no log entry, or need be none: one that is made again,
// and could bring back what is ending, one that comes after its own end, and one that does not wait for a name
// that is held.
func (r *Replica) answerClaim(request uint64, claim Claim) bool {
	reply := Reply{ID: request, Header: r.header(), Authority: forever}
	l, c := r.names.lines[claim.Name], r.names.claims[claim.Lease]
	_, _, over := r.names.farewells.to(claim.Lease)
	_, behind := r.behind()
	switch {
	case c == nil && (over || r.names.releasing[claim.Lease] > 0):
		reply.Err = ErrLost
	case !r.serving, behind:
		return false
	case c != nil:
		writer := r.store.Begin(r.db.NewIndexedBatch())
		reply.Result, reply.Err = r.claimedBefore(c, claim.Name, claim.TTL, writer)
		r.reuse(writer.Batch())
	case l != nil && l.owner != nil && !claim.Wait:
		reply.Result, reply.Err = r.refused(l)
	default:
		return false
	}
	if isFatal(reply.Err) {
		r.halt(reply.Err)
		return true
	}
	if r.serving {
		r.vouch(reply) // it tells of the state, and no log entry stands behind it
	} else {
		r.emit(reply)
	}
	return true
}

func (r *Replica) applyRelease(name string, id lessor.ID) (any, error) {
	c := r.names.claims[id]
	if c == nil {
		if _, exists := r.lessor.Lookup(id); exists {
			return nil, ErrLeaseTaken
		}
		r.names.farewells.add(id, WhyReleased, "") // the claim may still be on its way
		return false, nil
	}
	if c.line.name != name {
		return nil, ErrLeaseTaken
	}
	return true, r.endClaim(id, WhyReleased, "")
}

// endClaim ends a lease on somebody's word.
func (r *Replica) endClaim(id lessor.ID, why Why, note string) error {
	if _, err := r.lessor.Revoke(id); err != nil {
		return err
	}
	r.counts.Revoked++
	return r.ended(id, why, note)
}

func (r *Replica) applyRevokeName(op *logpb.RevokeName) (any, error) {
	l := r.names.lines[string(op.Name)]
	switch {
	case l == nil || l.owner == nil:
		return nil, ErrNotHeld
	case op.Token != 0 && op.Token != l.owner.created:
		return nil, ErrOtherToken
	case l.pinned != nil || r.holdsPinned(l.owner.lease):
		return nil, ErrPinned
	}
	answer := RevokedName{Token: l.owner.created}
	if op.Now {
		return answer, r.endClaim(l.owner.lease, WhyRevoked, string(op.Note))
	}
	note := string(op.Note)
	l.revoked = &note
	if err := r.lessor.Doom(l.owner.lease, r.now); err != nil {
		return nil, err
	}
	r.applying.datable = true
	r.applying.decided = append(r.applying.decided, l.owner.lease)
	r.writeLease(l.owner.lease)
	if left, err := r.lessor.Remaining(l.owner.lease, r.now); err == nil {
		answer.Left = left
	}
	return answer, r.changed(l)
}

// changed writes down what is remembered of a name that its holder keeps.
func (r *Replica) changed(l *line) error {
	current, err := r.tenancyOf(l)
	if err != nil {
		return err
	}
	r.writeName(l, current)
	change := NameChange{Kind: NameChanged, State: r.nameState(l)}
	change.State.Holder = current.GetHolder()
	r.tell(change)
	return nil
}

func (r *Replica) applyTransfer(name string, id lessor.ID) (any, error) {
	c := r.names.claims[id]
	switch {
	case c == nil || c.line.name != name || c.line.owner != c:
		return nil, ErrLost
	case c.line.pinned != nil:
		return nil, ErrPinned
	case len(c.line.queue) < 2:
		return nil, ErrNobodyWaits
	}
	next := c.line.queue[1]
	return next.created, r.endClaim(id, WhyTransferred, "")
}

func (r *Replica) applyPin(name, reason string) error {
	l := r.names.lines[name]
	if l == nil || l.owner == nil {
		return ErrNotHeld
	}
	if err := r.lessor.Pin(l.owner.lease); err != nil {
		return ErrNotHeld // its holder was revoked, and no pin changes that
	}
	l.pinned = &reason
	r.writeLease(l.owner.lease)
	return r.changed(l)
}

func (r *Replica) applyUnpin(name string, at lessor.Position) error {
	l := r.names.lines[name]
	if l == nil || l.pinned == nil {
		return nil
	}
	l.pinned = nil
	r.unpinLease(l.owner.lease)
	return r.changed(l)
}

// unpinLease lets a lease expire again that has just lost a pin, unless it holds another name that is pinned.
func (r *Replica) unpinLease(id lessor.ID) {
	lease, exists := r.lessor.Lookup(id)
	if !exists || !lease.Pinned || r.holdsPinned(id) {
		return
	}
	if err := r.lessor.Unpin(id, r.applying.at, r.now); err == nil {
		r.applying.decided = append(r.applying.decided, id)
		r.writeLease(id)
	}
}

// holdsPinned says whether a lease holds a name that is pinned.
func (r *Replica) holdsPinned(id lessor.ID) bool {
	if lease, exists := r.lessor.Lookup(id); !exists || !lease.Pinned {
		return false
	}
	for l := range r.heldBy(id) {
		if l.pinned != nil {
			return true
		}
	}
	return false
}

// heldBy yields the lines of the names that a lease holds: one of etcd's API can hold many.
func (r *Replica) heldBy(id lessor.ID) iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for _, item := range r.lessor.Items(id) {
			name, of, ok := contention([]byte(item.Key))
			if !ok || of != id {
				continue
			}
			if l := r.names.lines[string(name)]; l != nil && l.owner != nil && l.owner.lease == id && !yield(l) {
				return
			}
		}
	}
}
