package server

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxRenewalBatch bounds the ids of one call of the node, so that one stream cannot hold up the others.
const maxRenewalBatch = 512

// LeaseKeepAlive renews leases until the client goes. Answers come as the member gives them, which need not be
// the order of the requests: a lease whose renewal has to be replicated first does not hold up the rest.
//
// Three parties share a [renewals]: a goroutine that reads requests, this one, which hands them to the
// member and sends the answers, and whichever goroutine delivers these, which must never wait. Mostly that is
// this one, before the member returns.
func (l *leaseService) LeaseKeepAlive(stream grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	// A client that renews wants to know soon that nobody can: there may be another member to ask.
	ctx, end := l.s.longStream(stream, whileLed)
	defer end(nil)
	defer l.s.metrics.open(keepAliveStream)()

	r := newRenewals(l.s.cfg.MaxRenewals)
	defer r.close()
	l.s.loops.Go(func() { r.finish(r.read(stream)) })
	err := r.serve(ctx, l.s.member, stream)
	if errors.Is(err, replica.ErrTooManyRequests) {
		l.s.metrics.refuse(reasonTooMany)
		err = errTooManyRenewals
	}
	return err
}

// errTooManyRenewals has another code than for requests with one answer: at ResourceExhausted clients would
// give up keeping the lease alive.
var errTooManyRenewals = status.Error(codes.Unavailable, "etcdserver: too many requests")

// underWay is what the reading side and the serving side of a stream of renewals tell each other.
type underWay struct {
	wake chan struct{} // tells the serving side that something below has changed; holds one
	room chan struct{} // tells the reading side that something was answered; holds one
	gone chan struct{} // closed when the serving side has left

	mu    sync.Mutex // guards what is below, and what is to be answered
	open  int        // ids read and not yet answered to the client
	ended bool       // nothing more will be read
	err   error      // why, nil if the client just has no more requests
}

func newUnderWay() underWay {
	return underWay{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{})}
}

func (u *underWay) close() { close(u.gone) }

// finish says that nothing more will be read. io.EOF means that the client waits for what it asked.
func (u *underWay) finish(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended, u.err = true, unlessEOF(err)
	notify(u.wake)
}

// unlessEOF is for why a client is read from no more: that it just has no more to say is no error.
func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sent says that the answers to so many ids have left.
func (u *underWay) sent(n int) {
	u.mu.Lock()
	u.open -= n
	u.mu.Unlock()
	notify(u.room)
}

// wait returns when there may be something to take.
func (u *underWay) wait(ctx context.Context) error {
	select {
	case <-u.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renewals is what is under way on one keep-alive stream.
type renewals struct {
	underWay // open is len(asked) + with the member + len(answers) ≤ limit
	limit    int

	asked   []lessor.ID     // read from the client, not yet handed to the member
	answers []renewalAnswer // from the member, not yet sent to the client
}

type renewalAnswer struct {
	header replica.Header
	replica.RenewedLease
}

func newRenewals(limit int) *renewals {
	return &renewals{underWay: newUnderWay(), limit: limit}
}

// notify wakes the one that waits on a channel of capacity one, now or when it next looks.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read takes requests from the client until it has no more, or has gone. At the limit it stops reading, and
// the client's own sending comes to a halt: the answers of one who does not read them take no more memory.
func (r *renewals) read(stream grpc.ServerStream) error {
	var req pb.LeaseKeepAliveRequest // decoding resets it
	for {
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		for !r.ask(lessor.ID(req.ID)) {
			select {
			case <-r.room:
			case <-r.gone:
				return nil
			}
		}
	}
}

// ask takes one id on unless the limit is reached.
func (r *renewals) ask(id lessor.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.limit {
		return false
	}
	r.open++
	r.asked = append(r.asked, id)
	notify(r.wake)
	return true
}

// deliver is called by the member, from any goroutine.
func (r *renewals) deliver(h replica.Header, leases []replica.RenewedLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, lease := range leases {
		r.answers = append(r.answers, renewalAnswer{h, lease})
	}
	notify(r.wake)
}

// take returns what is to be done next. The ids belong to the member from then on; the answers are the
// caller's until its next call, to which it gives their memory back as spare.
func (r *renewals) take(spare []renewalAnswer) (ids []lessor.ID, answers []renewalAnswer, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids, r.asked = r.asked, nil
	answers, r.answers = r.answers, spare[:0]
	return ids, answers, r.ended && r.open == 0, r.err
}

// serve hands ids to the member and answers to the client until there will be no more of either. All that
// was read while it was busy goes to the member in as few calls as possible.
func (r *renewals) serve(ctx context.Context, m member, stream grpc.ServerStream) error {
	var (
		resp    = &pb.LeaseKeepAliveResponse{Header: new(pb.ResponseHeader)} // used again and again
		deliver = r.deliver
		spare   []renewalAnswer
	)
	for {
		ids, answers, done, err := r.take(spare)
		if err != nil {
			return err
		}
		asked := len(ids) > 0
		for len(ids) > 0 {
			n := min(len(ids), maxRenewalBatch)
			if err := m.Renew(ctx, ids[:n:n], deliver); err != nil {
				return err
			}
			ids = ids[n:]
		}
		for i := range answers {
			if err := answers[i].send(stream, resp); err != nil {
				return err
			}
		}
		spare = answers
		if len(answers) > 0 {
			r.sent(len(answers))
		}
		if asked || len(answers) > 0 {
			// Look again before waiting: those asked for may be answered already, and those sent may have been the
			// last, which nobody will wake us to see.
			continue
		}
		if done {
			return nil
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// send answers one renewal. A lease that is not there is answered with TTL 0. Any other error says to try
// again, which etcd's protocol can only express by ending the stream.
func (a *renewalAnswer) send(stream grpc.ServerStream, resp *pb.LeaseKeepAliveResponse) error {
	switch {
	case a.Err == nil:
		resp.TTL = wholeSeconds(a.TTL)
	case errors.Is(a.Err, lessor.ErrNotFound), errors.Is(a.Err, lessor.ErrDoomed):
		resp.TTL = 0 // of a holder that was revoked: this is how etcd's clients are told to stop
	default:
		return a.Err
	}
	resp.ID = int64(a.ID)
	resp.Header.ClusterId, resp.Header.MemberId = a.header.ClusterID, a.header.MemberID
	resp.Header.Revision, resp.Header.RaftTerm = a.header.Revision, a.header.Term
	return stream.SendMsg(resp)
}
