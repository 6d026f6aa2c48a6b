package namesapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

type acquireStream = grpc.ServerStreamingServer[leasekeeperv1.AcquireResponse]

// Acquire claims a name, and waits for it if the client wants to. The client owns the lease from the moment it is
// granted. The server does not renew it, and the end of the stream does not end it.
func (n *Service) Acquire(r *leasekeeperv1.AcquireRequest, stream acquireStream) error {
	claim, err := n.claimOf(r)
	if err != nil {
		return err
	}
	// A client that waits needs to learn soon that there is no leader, because it may reach one through another member.
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	if !claim.Wait {
		_, err := n.claim(ctx, claim, r.Holder.GetId(), stream)
		return err
	}
	share := n.cfg.Places.Join(admission.IdentityOf(ctx))
	defer share.Leave()
	key := claimKey{claim.Name, claim.Lease}
	n.abandoned.resume(key)
	if err := share.Take(); err != nil {
		return err
	}
	waiting := false
	defer func() {
		if share.Release(1); waiting {
			n.abandoned.abandon(share, key, claim.TTL)
		}
	}()
	// The watch begins before the claim, so that it does not miss the claim's turn.
	watch := n.cfg.Member.WatchClaim(claim.Lease)
	defer watch.Close()
	waits, err := n.claim(ctx, claim, r.Holder.GetId(), stream)
	waiting = waits || errors.Is(err, replica.ErrUnknownOutcome)
	if err != nil || !waits {
		return err
	}
	n.abandoned.attach(key)
	token, err := n.await(ctx, watch, claim)
	n.abandoned.detach(key)
	if err == nil {
		err = n.mayTakeTurn(ctx, key)
	}
	if err != nil {
		waiting = !errors.Is(err, ownership.ErrLost) && !errors.Is(err, access.ErrPermissionDenied)
		return err
	}
	waiting = false
	return stream.Send(&leasekeeperv1.AcquireResponse{
		State: leasekeeperv1.AcquireResponse_HELD, Lease: int64(claim.Lease), TtlMs: claim.TTL.Milliseconds(), Token: uint64(token),
	})
}

func (s *Service) claimOf(r *leasekeeperv1.AcquireRequest) (ownership.Claim, error) {
	claim, err := s.newClaim(r.Name, r.Lease, r.TtlMs, r.Wait, r.Priority)
	if err != nil {
		return ownership.Claim{}, err
	}
	if claim.Lease == lessor.NoLease {
		claim.Lease = randomLease()
	}
	claim.Holder, err = writeHolder(r.Holder)
	return claim, err
}

// newClaim returns a valid claim without a holder.
func (s *Service) newClaim(name string, lease, ttlMs int64, wait bool, priority int32) (ownership.Claim, error) {
	if err := checkName(name); err != nil {
		return ownership.Claim{}, err
	}
	ttl, err := s.claimTTLOf(ttlMs)
	if err == nil && lease < 0 {
		err = errLeaseID(lease)
	}
	if err == nil && priority != int32(int16(priority)) {
		err = fmt.Errorf("%w: the priority is %d: give one from %d to %d", backend.ErrInvalid, priority, math.MinInt16, math.MaxInt16)
	}
	return ownership.Claim{Lease: lessor.ID(lease), TTL: ttl, Name: name, Wait: wait, Priority: priority}, err
}

func errLeaseID(lease int64) error {
	return fmt.Errorf("%w: the lease id is %d: choose a random id above 0", backend.ErrInvalid, lease)
}

// randomLease returns a random lease id, which is certainly unused.
func randomLease() lessor.ID {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return lessor.ID(binary.BigEndian.Uint64(b[:])>>1 | 1)
}

// claim carries out the claim and sends its result to the client.
func (n *Service) claim(ctx context.Context, claim ownership.Claim, holder string, stream acquireStream) (waits bool, err error) {
	user := admission.UserOf(ctx)
	if err := n.cfg.Requests.Begin(user); err != nil {
		return false, err
	}
	defer n.cfg.Requests.End(user, 1)
	limited, cancel := context.WithTimeout(ctx, n.cfg.RequestTimeout)
	defer cancel()
	claimed, err := n.cfg.Member.Claim(limited, claim)
	if err != nil {
		return false, err
	}
	resp := &leasekeeperv1.AcquireResponse{
		Lease: int64(claimed.Lease), TtlMs: claimed.TTL.Milliseconds(), Token: uint64(claimed.Token), Place: int32(claimed.Before),
		Overtaken: claimed.Overtaken,
	}
	switch {
	case claimed.Lease == lessor.NoLease:
		resp.State = leasekeeperv1.AcquireResponse_REFUSED
		resp.Current = nameInfo(claimed.Current)
	case readHolder(claimed.Holder).Id != holder:
		return false, ownership.ErrLeaseTaken
	case claimed.Before == 0:
		resp.State = leasekeeperv1.AcquireResponse_HELD
	default:
		resp.State = leasekeeperv1.AcquireResponse_WAITING
		resp.Current = nameInfo(claimed.Current)
		waits = claim.Wait
	}
	return waits, stream.Send(resp)
}

// await waits until the lease holds the name, and returns its token.
func (n *Service) await(ctx context.Context, watch *node.NameWatch, claim ownership.Claim) (token int64, err error) {
	for {
		changes, missed, err := watch.Next(ctx)
		if err != nil {
			return 0, err
		}
		for i := range changes {
			switch c := &changes[i]; {
			case c.State.Name != claim.Name: // etcd's clients can put the lease into other queues too
			case c.Lease == claim.Lease:
				return 0, &lostClaim{c.Why, c.Note}
			case c.State.Lease == claim.Lease:
				return c.State.Token, nil
			}
		}
		if !missed {
			continue
		}
		place, err := n.cfg.Member.Place(ctx, claim.Name, claim.Lease)
		if err != nil || place.Before == 0 {
			return place.Token, err
		}
	}
}

// lostClaim is [ownership.ErrLost] with the reason why the lease ended.
type lostClaim struct {
	why  ownership.Why
	note string
}

func (l *lostClaim) Error() string {
	text := "the lease ended while it was queued: " + leasekeeperv1.Why(l.why).String()
	if l.note != "" {
		text += " (" + l.note + ")"
	}
	return text
}

func (l *lostClaim) Unwrap() error { return ownership.ErrLost }
