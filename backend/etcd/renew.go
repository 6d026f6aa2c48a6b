package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

const (
	// checkBatch is how many keys one transaction checks: it makes three comparisons for each.
	checkBatch = maxOps / 3
	// parallelChecks is how many of these transactions are under way at the same time. One after the other, a slow etcd would
	// answer the last of them too late.
	parallelChecks = 256
)

// round is one call of Renew.
type round struct {
	b        *Backend
	renewal  *endpoints.Renewal
	came     chan struct{} // signals an answer on a stream; holds one signal
	kept     chan struct{} // closed when no lease waits for an answer on a stream
	reported chan struct{} // closed when all leases are reported

	mu      sync.Mutex // also held while report runs
	report  func(int, backend.Renewal)
	leases  map[int64]*renewed
	waiting int       // how many leases wait for an answer on a stream
	open    int       // how many leases are not reported
	suspect []*lease  // etcd says that they are gone: their keys must be checked again
	failure error     // the first error because of which a lease is not reported
	news    chan bool // signals a new suspect; holds one signal
}

// renewed is what a round knows about one lease. The round reports the lease as renewed when it has a TTL and its key is
// checked.
type renewed struct {
	*lease
	places  []int         // its indexes in the caller's slice
	waits   bool          // it waits for an answer on a stream
	ttl     time.Duration // as etcd answered; 0 or less if it has not, or the lease is gone
	checked bool          // the key was there after the round began
	done    bool
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r := &round{
		b: b, report: report, leases: make(map[int64]*renewed, len(leases)), news: make(chan bool, 1),
		came: make(chan struct{}, 1), kept: make(chan struct{}), reported: make(chan struct{}),
	}
	var forget func()
	r.renewal, forget = b.endpoints.BeginRenewal(ctx, leases)
	defer forget()
	var ids []int64
	for i, l := range leases {
		own, err := endpoints.Known[*lease](b, l)
		if err != nil {
			report(i, backend.Renewal{Err: err})
			continue
		}
		known := r.leases[own.id]
		if known == nil {
			known = &renewed{lease: own, waits: true}
			r.leases[own.id] = known
			ids = append(ids, own.id)
		}
		known.places = append(known.places, i)
	}
	r.open, r.waiting = len(ids), len(ids)
	return r.run(ctx, ids)
}

func (r *round) run(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	var checks sync.WaitGroup
	streamed := make(chan struct{})
	checks.Go(func() { r.check(ctx, ids, streamed) })
	r.fail(r.keep(ctx, ids))
	close(streamed)
	checks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == 0 {
		return nil
	}
	return fmt.Errorf("the outcome of %d of %d renewals is unknown: %w", r.open, len(ids), r.failure)
}

func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// deliver reports one lease, once. The caller holds r.mu.
func (r *round) deliver(l *renewed, what backend.Renewal) {
	if l.done {
		return
	}
	l.done = true
	r.stopWaiting(l)
	for _, i := range l.places {
		r.report(i, what)
	}
	if r.open--; r.open == 0 {
		close(r.reported)
	}
}

// stopWaiting notes that a lease no longer waits for an answer on a stream. The caller holds r.mu.
func (r *round) stopWaiting(l *renewed) {
	if !l.waits {
		return
	}
	l.waits = false
	if r.waiting--; r.waiting == 0 {
		close(r.kept)
	}
}

// settle reports a lease if etcd has renewed it and its key is checked. The caller holds r.mu.
func (r *round) settle(l *renewed) {
	if l.ttl > 0 && l.checked {
		r.deliver(l, backend.Renewal{TTL: l.ttl})
	}
}

// keep renews the leases. Each attempt has a stream of its own, so no answer can be taken for the answer to another attempt.
// Every attempt is sent after the call of Renew, from which the new deadline counts.
func (r *round) keep(ctx context.Context, ids []int64) error {
	var mu sync.Mutex
	p := &pursuit{b: r.b, renewal: r.renewal, news: r.came, over: r.kept, attempt: func(ctx context.Context, w *endpoint) error {
		mu.Lock()
		ids = r.unanswered(ids)
		mine := ids
		if len(ids) > 0 {
			// It is unknown which lease blocks the others, so each attempt puts another lease last.
			ids = append(slices.Clone(ids[1:]), ids[0])
		}
		mu.Unlock()
		return r.stream(ctx, w, mine)
	}}
	err := p.run(ctx)
	switch ended := endpoints.Ended(ctx); {
	case err == nil:
		return nil
	case ended != nil:
		return ended
	}
	return fmt.Errorf("%w: %s", kindOf(err), store.Text(err))
}

// stream renews leases over a stream of its own. It ends when all are answered, or the stream fails.
func (r *round) stream(ctx context.Context, w *endpoint, ids []int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := w.lease.LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	// Sending and receiving run at the same time: otherwise both sides could wait for the other to read.
	var sending sync.WaitGroup
	sending.Go(func() {
		for _, id := range ids {
			if s.Send(&pb.LeaseKeepAliveRequest{ID: id}) != nil {
				return // receiving returns the reason
			}
		}
		_ = s.CloseSend()
	})
	defer sending.Wait()
	defer cancel() // runs before sending.Wait
	asked := make(map[int64]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	for len(asked) > 0 {
		resp, err := s.Recv()
		if err != nil {
			if err = because(ctx, err); answered(err) && !r.b.user.needsToken(err) {
				// etcd answers the requests on a stream in order, so the error belongs to the first one that is not answered.
				r.refuse(ids[slices.IndexFunc(ids, func(id int64) bool { return asked[id] })], err)
			}
			return err
		}
		if !asked[resp.ID] {
			continue
		}
		delete(asked, resp.ID)
		r.answer(resp.ID, resp.TTL)
		select {
		case r.came <- struct{}{}:
		default:
		}
	}
	return nil
}

// answer takes etcd's answer about a lease.
func (r *round) answer(id, ttl int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[id]
	if !l.waits {
		return // another stream was faster
	}
	r.stopWaiting(l)
	l.ttl = ttlUnit.Duration(ttl)
	if ttl > 0 {
		r.settle(l)
		return
	}
	r.suspect = append(r.suspect, l.lease)
	select {
	case r.news <- true:
	default:
	}
}

// refuse reports that etcd refuses to renew a lease.
func (r *round) refuse(id int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[id]
	if !l.waits {
		return // another stream was faster
	}
	r.deliver(l, backend.Renewal{Err: fmt.Errorf("%w: renewing %s: %s", kindOf(err), l.name, store.Text(err))})
}

func (r *round) unanswered(ids []int64) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return !r.leases[id].waits })
}

// check checks the keys of all leases, and again the keys of leases that etcd says are gone. It ends when all renewals are
// answered.
func (r *round) check(ctx context.Context, ids []int64, streamed <-chan struct{}) {
	batches := make(chan []*lease)
	var checkers sync.WaitGroup
	for range min(parallelChecks, 1+len(ids)/checkBatch) {
		checkers.Go(func() {
			for batch := range batches {
				r.fail(r.look(ctx, batch, false))
			}
		})
	}
	batch := make([]*lease, 0, checkBatch)
	for i, id := range ids {
		if batch = append(batch, r.leases[id].lease); len(batch) == checkBatch || i == len(ids)-1 {
			batches <- batch
			batch = make([]*lease, 0, checkBatch)
		}
	}
	close(batches)
	checkers.Wait()
	for done := false; !done; {
		select {
		case <-r.news:
		case <-streamed:
			done = true
		}
		r.mu.Lock()
		suspect := r.suspect
		r.suspect = nil
		r.mu.Unlock()
		for batch := range slices.Chunk(suspect, checkBatch) {
			r.fail(r.look(ctx, batch, true))
		}
	}
}

// look checks which keys are there. gone means that etcd has said that these leases are gone. If such a key is there, another
// member knows better.
func (r *round) look(ctx context.Context, batch []*lease, gone bool) error {
	// The transaction is linearizable because of its reads, although it rarely makes them. Without them a member would
	// compare with its own state.
	req := new(pb.TxnRequest)
	for _, l := range batch {
		req.Compare = append(req.Compare, l.conditions()...)
		req.Failure = append(req.Failure, rangeOp(oneKey(l.key)), rangeOp(&pb.RangeRequest{Key: l.revocation()}))
	}
	resp, err := r.read(ctx, req)
	if err != nil {
		return store.Outcome(err).Read("looking whether the leases are there")
	}
	if resp == nil {
		return nil // all leases are reported
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, l := range batch {
		known := r.leases[l.id]
		switch {
		case !resp.Succeeded && !l.is(single(resp.Responses[2*i])):
			r.deliver(known, backend.Renewal{Err: fmt.Errorf("%w: the key %s is gone from etcd", backend.ErrLost, l.key)})
		case !resp.Succeeded && single(resp.Responses[2*i+1]) != nil:
			r.deliver(known, backend.Renewal{Err: fmt.Errorf("%w: %s", backend.ErrLost, whyRevoked(single(resp.Responses[2*i+1])))})
		case gone:
			r.deliver(known, backend.Renewal{Err: fmt.Errorf("%w: etcd says that the lease of %s is gone, but its key is not", backend.ErrUnavailable, l.name)})
		default:
			known.checked = true
			r.settle(known)
		}
	}
	return nil
}

// read makes a transaction that only reads. It returns nil if all leases are reported before the answer comes.
func (r *round) read(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	var resp atomic.Pointer[pb.TxnResponse]
	p := &pursuit{b: r.b, renewal: r.renewal, over: r.reported, final: answered, attempt: func(ctx context.Context, w *endpoint) error {
		got, err := w.txn(ctx, req)
		if err == nil {
			resp.Store(got)
		}
		return err
	}}
	err := p.run(ctx)
	return resp.Load(), err
}

// conditions hold exactly while the key is there, is attached to its lease, and has no revocation.
func (l *lease) conditions() []*pb.Compare {
	return []*pb.Compare{l.condition(), l.attachment(), {
		Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, Key: l.revocation(),
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
	}}
}

// revocation is the key that says that the lease was revoked, and why. It lies one level too deep to be in the queue.
func (l *lease) revocation() []byte { return []byte(l.key + "/revoked") }

// condition holds exactly while the key is there.
func (l *lease) condition() *pb.Compare {
	return &pb.Compare{
		Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, Key: []byte(l.key),
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: l.created},
	}
}

// attachment holds exactly while the key is attached to its lease.
func (l *lease) attachment() *pb.Compare {
	return &pb.Compare{
		Target: pb.Compare_LEASE, Result: pb.Compare_EQUAL, Key: []byte(l.key),
		TargetUnion: &pb.Compare_Lease{Lease: l.id},
	}
}

// keepOne renews one lease, whatever its key. The TTL is 0 or less if etcd does not know the lease.
func (b *Backend) keepOne(ctx context.Context, id int64) (ttl time.Duration, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *endpoint, _ ...grpc.CallOption) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := w.lease.LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		// If sending fails, receiving returns the reason.
		_ = s.Send(&pb.LeaseKeepAliveRequest{ID: id})
		_ = s.CloseSend()
		resp, err := s.Recv()
		if err != nil {
			return because(ctx, err)
		}
		ttl = ttlUnit.Duration(resp.TTL)
		return nil
	})
	return ttl, f
}
