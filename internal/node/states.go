package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/statexfer"
)

// states are the whole states that are on their way to and from other members.
type states struct {
	mu        sync.Mutex
	shipping  map[uint64]bool // to whom
	receiving bool
	installed chan replica.Event // an Installed; holds one: no more is ever under way
}

var (
	errShipping  = errors.New("a state is on its way to that member already")
	errReceiving = errors.New("this member is receiving a state already: try again when that is done")
)

func newStates() states {
	return states{shipping: make(map[uint64]bool), installed: make(chan replica.Event, 1)}
}

// shipTo reports whether a state may be sent to a member now. If so, the caller calls shipped in the end.
func (s *states) shipTo(member uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shipping[member] {
		return false
	}
	s.shipping[member] = true
	return true
}

func (s *states) shipped(member uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.shipping, member)
}

// receive is shipTo for a state that comes.
func (s *states) receive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiving {
		return false
	}
	s.receiving = true
	return true
}

func (s *states) received() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiving = false
}

// ship performs a Ship on a goroutine of its own, which holds the database, so that Stop waits for it.
func (n *Node) ship(e replica.Ship) {
	ctx, end, err := n.use(context.Background())
	if err != nil { // the member stops, and does not want to hear how it went
		_ = e.State.Close()
		return
	}
	go func() {
		defer end()
		err := n.shipState(ctx, e)
		if err != nil {
			n.log.Warn("member could not be sent the whole state", "member", e.Message.To, "error", err)
		} else {
			n.log.Info("member was sent the whole state", "member", e.Message.To)
		}
		_ = n.handIn(ctx, replica.Shipped{To: e.Message.To, Err: err}) // unless the member stops
	}()
}

func (n *Node) shipState(ctx context.Context, e replica.Ship) error {
	to := e.Message.To
	if !n.states.shipTo(to) {
		return errors.Join(errShipping, e.State.Close())
	}
	defer n.states.shipped(to)
	state, err := statexfer.NewReader(e.State)
	if err != nil {
		return errors.Join(err, e.State.Close())
	}
	err = n.cfg.Cluster.Transport.Ship(ctx, to, e.Message.AppendTo(nil), state)
	return errors.Join(err, state.Close(), e.State.Close())
}

// ReceiveState takes a snapshot that another member sent, with the state that it came with. It returns when all of
// that has been read, and is on this member's disk; an error means that it changed nothing.
func (n *Node) ReceiveState(ctx context.Context, from, incarnation uint64, frame []byte, state io.Reader) error {
	m, err := message.Parse(from, n.identity.MemberID, frame)
	if err != nil {
		return err
	}
	if m.Raft.GetType() != raftpb.MsgSnap {
		return fmt.Errorf("%w: a state came with a message that is no snapshot", message.ErrMalformed)
	}
	ctx, end, err := n.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	if !n.states.receive() {
		return errReceiving
	}
	defer n.states.received()
	staged, err := statexfer.Stage(ctx, n.cfg.FS, n.cfg.Dir, randomID(), state, statexfer.Receipt{ClusterID: n.identity.ClusterID, Domain: n.replica.ClockDomain(), Now: clock.Now})
	if err != nil {
		return err
	}
	if err := staged.Check(m.Raft.GetSnapshot()); err != nil {
		return errors.Join(err, staged.Discard())
	}
	if err := n.handIn(ctx, replica.Received{Message: m, Incarnation: incarnation, State: staged}); err != nil {
		return errors.Join(err, staged.Discard())
	}
	return nil
}

// handIn gives the member's goroutine an event that nobody waits for an answer to.
func (n *Node) handIn(ctx context.Context, event replica.Event) error {
	select {
	case n.intake <- submission{event: event}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.done:
		return ErrStopped
	}
}

// install performs an Install, on the member's goroutine: while it lasts nobody writes. How it went is in
// n.states.installed.
func (n *Node) install(e replica.Install) {
	n.log.Info("member puts the state of another member in place of its own")
	n.states.installed <- replica.Installed{Sequence: e.Sequence, Err: statexfer.Install(context.Background(), n.db, e.State.(*statexfer.Staged), e.Own)}
}

// discard performs a Discard.
func (n *Node) discard(e replica.Discard) {
	if err := e.State.Discard(); err != nil {
		n.log.Warn("a state that is not needed cannot be removed; the next start does", "error", err)
	}
}

// replaced performs a Replaced.
func (n *Node) replaced() {
	n.hub.Reload()
	n.names.miss()
}

// miss tells all who watch names that they missed something.
func (h *namesHub) miss() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.all {
		w.miss()
	}
	for _, watches := range h.byLease { // order: each by itself
		for _, w := range watches {
			w.miss()
		}
	}
}

func (w *NameWatch) miss() {
	w.changes, w.missed = nil, true
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
