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

// states tracks the whole states in transfer to and from other members.
type states struct {
	mu        sync.Mutex
	shipping  map[uint64]bool // receiving members
	receiving bool
	installed chan replica.Event // an Installed; capacity one: at most one installation is under way
}

var (
	errShipping  = errors.New("a state is on its way to that member already")
	errReceiving = errors.New("this member is receiving a state already: try again when that is done")
)

func newStates() states {
	return states{shipping: make(map[uint64]bool), installed: make(chan replica.Event, 1)}
}

// shipTo reserves the transfer to a member, or returns false if one is under way. After true the caller must call
// shipped.
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

// receive reserves the transfer from another member, or returns false if one is under way. After true the caller must
// call received.
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

// ship performs a Ship on a goroutine of its own. That goroutine holds the database, so Stop waits for it.
func (n *Node) ship(e replica.Ship) {
	ctx, end, err := n.use(context.Background())
	if err != nil { // the member stops, so it needs no report
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
		_ = n.submit(ctx, replica.Shipped{To: e.Message.To, Err: err}) // fails only if the member stops
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

// ReceiveState takes a snapshot message of another member, with its state. It returns when the whole state is on this
// member's disk. An error means that it changed nothing.
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
	if err := n.submit(ctx, replica.Received{Message: m, Incarnation: incarnation, State: staged}); err != nil {
		return errors.Join(err, staged.Discard())
	}
	return nil
}

// submit queues an event without an answer for the member's goroutine.
func (n *Node) submit(ctx context.Context, event replica.Event) error {
	select {
	case n.intake <- submission{event: event}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.done:
		return ErrStopped
	}
}

// install performs an Install on the member's goroutine, so that nothing is written meanwhile. The outcome goes to
// n.states.installed.
func (n *Node) install(e replica.Install) {
	n.log.Info("member puts the state of another member in place of its own")
	n.states.installed <- replica.Installed{Sequence: e.Sequence, Err: statexfer.Install(context.Background(), n.db, e.State.(*statexfer.Staged), e.Own)}
}

// discard removes a state of another member that was received and is not needed.
func (n *Node) discard(e replica.Discard) {
	if err := e.State.Discard(); err != nil {
		n.log.Warn("a state that is not needed cannot be removed; the next start does", "error", err)
	}
}

// replaced performs a Replaced: it makes the watchers of keys and names start over.
func (n *Node) replaced() {
	n.hub.Reload()
	n.nameHub.missAll()
}

// missAll marks all watches of names as having missed changes.
func (h *nameHub) missAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.all {
		w.miss()
	}
	for _, watches := range h.byLease { // order: each watch is marked by itself
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
