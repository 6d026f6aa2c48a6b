package etcdapi

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
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
	ctx, end := l.cfg.Lifetime.Stream(stream.Context(), lifetime.WhileLed)
	defer end(nil)
	defer l.cfg.Metrics.OpenKeepAlive()()

	r := newRenewals(l.cfg.MaxRenewals)
	defer r.Close()
	l.cfg.Lifetime.Go(func() { r.Finish(r.read(stream)) })
	err := r.serve(ctx, l.cfg.Member, stream)
	if errors.Is(err, replica.ErrTooManyRequests) {
		l.cfg.Metrics.Refuse(admission.ReasonRequests)
		err = errTooManyRenewals
	}
	return err
}

// errTooManyRenewals has another code than for requests with one answer: at ResourceExhausted clients would
// give up keeping the lease alive.
var errTooManyRenewals = status.Error(codes.Unavailable, "etcdserver: too many requests")

// renewals is what is under way on one keep-alive stream.
type renewals struct {
	duplex.Flow // open is len(asked) + with the member + len(answers) ≤ limit
	limit       int

	asked   []lessor.ID     // read from the client, not yet handed to the member
	answers []renewalAnswer // from the member, not yet sent to the client
}

type renewalAnswer struct {
	header replica.Header
	replica.RenewedLease
}

func newRenewals(limit int) *renewals {
	return &renewals{Flow: duplex.NewFlow(), limit: limit}
}

// read takes requests from the client until it has no more, or has gone. At the limit it stops reading, and
// the client's own sending comes to a halt: a client that does not read its answers takes no further memory.
func (r *renewals) read(stream grpc.ServerStream) error {
	var req pb.LeaseKeepAliveRequest // decoding resets it
	for {
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		for !r.ask(lessor.ID(req.ID)) {
			if !r.AwaitRoom() {
				return nil
			}
		}
	}
}

// ask takes one id on unless the limit is reached.
func (r *renewals) ask(id lessor.ID) bool {
	r.Lock()
	defer r.Unlock()
	if r.Open >= r.limit {
		return false
	}
	r.Open++
	r.asked = append(r.asked, id)
	r.Wake()
	return true
}

// deliver is called by the member, from any goroutine.
func (r *renewals) deliver(h replica.Header, leases []replica.RenewedLease) {
	r.Lock()
	defer r.Unlock()
	for _, lease := range leases {
		r.answers = append(r.answers, renewalAnswer{h, lease})
	}
	r.Wake()
}

// take returns what is to be done next. The ids belong to the member from then on; the answers are the
// caller's until its next call, to which it gives their memory back as spare.
func (r *renewals) take(spare []renewalAnswer) (ids []lessor.ID, answers []renewalAnswer, done bool, err error) {
	r.Lock()
	defer r.Unlock()
	ids, r.asked = r.asked, nil
	answers, r.answers = r.answers, spare[:0]
	ended, err := r.Ended()
	return ids, answers, ended && r.Open == 0, err
}

// serve hands ids to the member and answers to the client until there will be no more of either. All that
// was read while it was busy goes to the member in as few calls as possible.
func (r *renewals) serve(ctx context.Context, m Member, stream grpc.ServerStream) error {
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
			r.Sent(len(answers))
		}
		if asked || len(answers) > 0 {
			// Look again before waiting: those asked for may be answered already, and those sent may have been the
			// last, which nobody will wake us to see.
			continue
		}
		if done {
			return nil
		}
		if err := r.Wait(ctx); err != nil {
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
	case errors.Is(a.Err, lessor.ErrNotFound), errors.Is(a.Err, lessor.ErrRenewalRefused):
		resp.TTL = 0 // of a holder that was revoked: this is how etcd's clients are told to stop
	default:
		return a.Err
	}
	resp.ID = int64(a.ID)
	resp.Header.ClusterId, resp.Header.MemberId = a.header.ClusterID, a.header.MemberID
	resp.Header.Revision, resp.Header.RaftTerm = a.header.Revision, a.header.Term
	return stream.SendMsg(resp)
}
