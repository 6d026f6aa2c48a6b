package namesapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

const (
	// maxRenewalIDs bounds the ids of one message. A message is one call of the node, which takes about a millisecond.
	maxRenewalIDs = 1 << 14
	// maxOpenIDs bounds the unanswered ids of one stream. At the bound the server stops reading the stream.
	maxOpenIDs = 8 * maxRenewalIDs
)

type renewStream = grpc.BidiStreamingServer[leasekeeperv1.RenewRequest, leasekeeperv1.RenewResponse]

// Renew serves one stream of renewals, with many ids in each message. One goroutine reads messages and submits them to
// the member. The member's goroutine delivers answers, and this one sends them.
func (n *Service) Renew(stream renewStream) error {
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.WhileLed)
	defer end(nil)
	defer n.cfg.Metrics.OpenKeepAlive()()
	r := &bulkRenewals{Flow: duplex.NewFlow()}
	defer r.Close()
	n.cfg.Lifetime.Go(func() { r.Finish(r.read(ctx, n.cfg.Member, stream)) })
	return r.serve(ctx, stream)
}

// bulkRenewals is the work in progress on one stream.
type bulkRenewals struct {
	duplex.Flow
	answers []bulkAnswer // from the member, not yet sent to the client
}

// bulkAnswer is the member's answer to some ids of a message.
type bulkAnswer struct {
	message *bulkMessage
	leases  []replica.RenewedLease
}

// bulkMessage is one request that is not answered in full. Only the serving side changes it.
type bulkMessage struct {
	number   uint64
	ids      []lessor.ID
	answered bool // at least one answer was made
	// places contains the indices of unanswered ids, by id; nil until the first answer that is not in order.
	places map[lessor.ID][]uint32
}

// read submits messages to the member until the client has no more, or has gone.
func (r *bulkRenewals) read(ctx context.Context, m Member, stream renewStream) error {
	var last uint64
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := checkRenew(req, last); err != nil {
			return err
		}
		last = req.Number
		message := &bulkMessage{number: req.Number, ids: make([]lessor.ID, len(req.Leases))}
		for i, id := range req.Leases {
			message.ids[i] = lessor.ID(id)
		}
		if !r.reserve(len(message.ids)) {
			return nil
		}
		if len(message.ids) == 0 { // a client may check the connection with an empty message
			r.deliver(bulkAnswer{message, nil})
			continue
		}
		err = m.Renew(ctx, message.ids, func(_ replica.Header, leases []replica.RenewedLease) {
			r.deliver(bulkAnswer{message, leases})
		})
		if errors.Is(err, access.ErrPermissionDenied) { // the user was removed
			r.deliver(bulkAnswer{message, message.refused(err)})
			continue
		}
		if err != nil {
			return err
		}
	}
}

// refused returns the answer that refuses all leases of a message.
func (m *bulkMessage) refused(err error) []replica.RenewedLease {
	leases := make([]replica.RenewedLease, len(m.ids))
	for i, id := range m.ids {
		leases[i] = replica.RenewedLease{ID: id, Err: err}
	}
	return leases
}

func checkRenew(req *leasekeeperv1.RenewRequest, last uint64) error {
	if req.Number <= last {
		return fmt.Errorf("%w: message %d comes after message %d: give each a larger number", backend.ErrInvalid, req.Number, last)
	}
	if len(req.Leases) > maxRenewalIDs {
		return fmt.Errorf("%w: message %d names %d leases, more than %d: send several messages", backend.ErrInvalid, req.Number, len(req.Leases), maxRenewalIDs)
	}
	return nil
}

// weight is what a message counts towards maxOpenIDs. A message without ids counts too, since it has an answer.
func weight(ids int) int { return max(ids, 1) }

// reserve waits for room for a number of ids. It returns false if the stream has ended.
func (r *bulkRenewals) reserve(ids int) bool {
	for {
		r.Lock()
		if r.Open == 0 || r.Open+ids <= maxOpenIDs {
			r.Open += weight(ids)
			r.Unlock()
			return true
		}
		r.Unlock()
		if !r.AwaitRoom() {
			return false
		}
	}
}

// deliver stores an answer of the member. The member calls it from its own goroutine. It never waits.
func (r *bulkRenewals) deliver(a bulkAnswer) {
	r.Lock()
	defer r.Unlock()
	r.answers = append(r.answers, a)
	r.Wake()
}

// serve sends answers until there will be no more.
func (r *bulkRenewals) serve(ctx context.Context, stream renewStream) error {
	for {
		r.Lock()
		ended, err := r.Ended()
		answers, done := r.answers, ended && r.Open == 0
		r.answers = nil
		r.Unlock()
		if err != nil {
			return err
		}
		for _, a := range answers {
			if err := stream.Send(a.message.answer(a.leases)); err != nil {
				return err
			}
			r.Sent(weight(len(a.leases)))
		}
		if len(answers) > 0 {
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

// answer returns the message to the client about some leases of a request.
func (m *bulkMessage) answer(leases []replica.RenewedLease) *leasekeeperv1.RenewResponse {
	resp := &leasekeeperv1.RenewResponse{Number: m.number, Late: m.answered}
	first := !m.answered
	m.answered = true
	if first && m.inOrder(leases) {
		for i := range leases {
			resp.Refused = appendRefused(resp.Refused, uint32(i), leases[i].Err)
		}
		return resp
	}
	m.index()
	for i := range leases {
		place := m.pop(leases[i].ID)
		if resp.Late && leases[i].Err == nil {
			resp.Places = append(resp.Places, place)
		}
		resp.Refused = appendRefused(resp.Refused, place, leases[i].Err)
	}
	if first {
		resp.Pending = m.pending()
	}
	return resp
}

// inOrder reports whether leases are all leases of the message, in its order.
func (m *bulkMessage) inOrder(leases []replica.RenewedLease) bool {
	if len(leases) != len(m.ids) {
		return false
	}
	for i := range leases {
		if leases[i].ID != m.ids[i] {
			return false
		}
	}
	return true
}

func (m *bulkMessage) index() {
	if m.places != nil {
		return
	}
	m.places = make(map[lessor.ID][]uint32, len(m.ids))
	for i, id := range m.ids {
		m.places[id] = append(m.places[id], uint32(i))
	}
}

// pop removes and returns an unanswered index of an id. The member answers each id as often as the message contains it.
func (m *bulkMessage) pop(id lessor.ID) uint32 {
	places := m.places[id]
	if len(places) == 1 {
		delete(m.places, id)
	} else {
		m.places[id] = places[1:]
	}
	return places[0]
}

// pending returns the unanswered indices in ascending order.
func (m *bulkMessage) pending() []uint32 {
	var left []uint32
	for _, places := range m.places { // order: sorted below
		left = append(left, places...)
	}
	slices.Sort(left)
	return left
}

func appendRefused(refused []*leasekeeperv1.RefusedRenewal, place uint32, err error) []*leasekeeperv1.RefusedRenewal {
	if err == nil {
		return refused
	}
	r := &leasekeeperv1.RefusedRenewal{Place: place, State: leasekeeperv1.RefusedRenewal_RETRY}
	switch {
	case errors.Is(err, lessor.ErrNotFound):
		r.State = leasekeeperv1.RefusedRenewal_GONE
	case errors.Is(err, lessor.ErrRenewalRefused):
		r.State = leasekeeperv1.RefusedRenewal_REVOKED
	case errors.Is(err, access.ErrPermissionDenied):
		r.State = leasekeeperv1.RefusedRenewal_DENIED
	}
	if ended := (*ownership.EndedError)(nil); errors.As(err, &ended) {
		r.Why, r.Note = leasekeeperv1.Why(ended.Why), ended.Note
	}
	return append(refused, r)
}
