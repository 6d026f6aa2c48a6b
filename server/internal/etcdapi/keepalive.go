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

// maxRenewalBatch bounds the ids in one call of the node, so that one stream does not delay the others.
const maxRenewalBatch = 512

// LeaseKeepAlive renews leases until the client ends the stream. It sends answers in the order in which the member
// gives them. A lease whose renewal must be replicated first does not delay the others.
//
// Three parties share a [renewals]. One goroutine reads requests. This one submits them to the member and sends the
// answers. The third delivers the answers and must never wait; mostly it is this goroutine too, before the member
// returns.
func (l *leaseService) LeaseKeepAlive(stream grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	// A client that renews needs to learn soon that there is no leader, because it may reach one through another
	// member.
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

// errTooManyRenewals differs from the error of unary requests. After ResourceExhausted, clients would stop renewing the
// lease.
var errTooManyRenewals = status.Error(codes.Unavailable, "etcdserver: too many requests")

// renewals is the work in progress on one keep-alive stream.
type renewals struct {
	duplex.Flow // Open is len(queued) + with the member + len(answers) ≤ limit
	limit       int

	queued  []lessor.ID     // read from the client, not yet submitted to the member
	answers []renewalAnswer // from the member, not yet sent to the client
}

type renewalAnswer struct {
	header replica.Header
	replica.RenewedLease
}

func newRenewals(limit int) *renewals {
	return &renewals{Flow: duplex.NewFlow(), limit: limit}
}

// read queues requests of the client until it has no more, or has gone. At the limit it stops reading, and flow control
// stops the client. A client that does not read its answers therefore takes no more memory.
func (r *renewals) read(stream grpc.ServerStream) error {
	var req pb.LeaseKeepAliveRequest // decoding resets it
	for {
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		for !r.add(lessor.ID(req.ID)) {
			if !r.AwaitRoom() {
				return nil
			}
		}
	}
}

// add queues one id, unless the limit is reached.
func (r *renewals) add(id lessor.ID) bool {
	r.Lock()
	defer r.Unlock()
	if r.Open >= r.limit {
		return false
	}
	r.Open++
	r.queued = append(r.queued, id)
	r.Wake()
	return true
}

// deliver stores answers of the member. The member calls it from any goroutine.
func (r *renewals) deliver(h replica.Header, leases []replica.RenewedLease) {
	r.Lock()
	defer r.Unlock()
	for _, lease := range leases {
		r.answers = append(r.answers, renewalAnswer{h, lease})
	}
	r.Wake()
}

// take returns the next work. The ids belong to the member from then on. The answers belong to the caller until its
// next call, which returns their memory as spare.
func (r *renewals) take(spare []renewalAnswer) (ids []lessor.ID, answers []renewalAnswer, done bool, err error) {
	r.Lock()
	defer r.Unlock()
	ids, r.queued = r.queued, nil
	answers, r.answers = r.answers, spare[:0]
	ended, err := r.Ended()
	return ids, answers, ended && r.Open == 0, err
}

// serve submits ids to the member and sends answers to the client until both have ended. It submits in as few calls as
// possible all ids that were read in the meantime.
func (r *renewals) serve(ctx context.Context, m Member, stream grpc.ServerStream) error {
	var (
		resp    = &pb.LeaseKeepAliveResponse{Header: new(pb.ResponseHeader)} // reused for every answer
		deliver = r.deliver
		spare   []renewalAnswer
	)
	for {
		ids, answers, done, err := r.take(spare)
		if err != nil {
			return err
		}
		submitted := len(ids) > 0
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
		if submitted || len(answers) > 0 {
			// Look once more before waiting. The submitted ids may already be answered. The sent answers may have been
			// the last, and then nothing would wake this goroutine.
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

// send answers one renewal. TTL 0 says that the lease does not exist. Any other error means "try again", which etcd's
// protocol can express only by ending the stream.
func (a *renewalAnswer) send(stream grpc.ServerStream, resp *pb.LeaseKeepAliveResponse) error {
	switch {
	case a.Err == nil:
		resp.TTL = wholeSeconds(a.TTL)
	case errors.Is(a.Err, lessor.ErrNotFound), errors.Is(a.Err, lessor.ErrRenewalRefused):
		resp.TTL = 0 // the holder was revoked: TTL 0 makes etcd's clients stop
	default:
		return a.Err
	}
	resp.ID = int64(a.ID)
	resp.Header.ClusterId, resp.Header.MemberId = a.header.ClusterID, a.header.MemberID
	resp.Header.Revision, resp.Header.RaftTerm = a.header.Revision, a.header.Term
	return stream.SendMsg(resp)
}
