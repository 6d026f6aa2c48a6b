package namesapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

const (
	// maxRenewalIDs bounds one message. It is one call of the node, which takes about a millisecond.
	maxRenewalIDs = 1 << 14
	// maxOpenIDs bounds what one stream has under way; beyond it no more is read.
	maxOpenIDs = 8 * maxRenewalIDs
)

type renewStream = grpc.BidiStreamingServer[leasekeeperv1.RenewRequest, leasekeeperv1.RenewResponse]

// Renew works as LeaseKeepAlive does, with messages of many ids: a goroutine reads and hands to the member,
// the member's own delivers, and this one sends.
func (n *Service) Renew(stream renewStream) error {
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.WhileLed)
	defer end(nil)
	defer n.cfg.Metrics.OpenKeepAlive()()
	r := &bulkRenewals{Flow: duplex.NewFlow()}
	defer r.Close()
	n.cfg.Lifetime.Go(func() { r.Finish(r.read(ctx, n.cfg.Member, stream)) })
	return r.serve(ctx, stream)
}

// bulkRenewals is what is under way on one stream.
type bulkRenewals struct {
	duplex.Flow
	answers []bulkAnswer // from the member, not yet sent to the client
}

// bulkAnswer is what the member says to some ids of a message.
type bulkAnswer struct {
	message *bulkMessage
	leases  []replica.RenewedLease
}

// bulkMessage is one request that is not yet answered in full. Only the serving side changes it.
type bulkMessage struct {
	number   uint64
	ids      []lessor.ID
	answered bool // at least once
	// places has those that are not answered, by id; nil while nobody needed it.
	places map[lessor.ID][]uint32
}

// read hands messages to the member until the client has no more, or has gone.
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
		if !r.take(len(message.ids)) {
			return nil
		}
		if len(message.ids) == 0 { // a client may ask whether somebody is there
			r.deliver(bulkAnswer{message, nil})
			continue
		}
		err = m.Renew(ctx, message.ids, func(_ replica.Header, leases []replica.RenewedLease) {
			r.deliver(bulkAnswer{message, leases})
		})
		if err != nil {
			return err
		}
	}
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

// room is what so many ids count for: a message without any has one answer, too.
func room(ids int) int { return max(ids, 1) }

// take waits for room for so many ids. It is false if nobody will answer them.
func (r *bulkRenewals) take(ids int) bool {
	for {
		r.Lock()
		if r.Open == 0 || r.Open+ids <= maxOpenIDs {
			r.Open += room(ids)
			r.Unlock()
			return true
		}
		r.Unlock()
		if !r.AwaitRoom() {
			return false
		}
	}
}

// deliver is called by the member, from its own goroutine, and does not wait.
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
			r.Sent(room(len(a.leases)))
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

// answer tells the client what became of some leases of a message.
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

// inOrder says whether these are all leases, in the order of the message.
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

// pop returns a place of the id that is not answered yet: the member names each as often as it was asked for.
func (m *bulkMessage) pop(id lessor.ID) uint32 {
	places := m.places[id]
	if len(places) == 1 {
		delete(m.places, id)
	} else {
		m.places[id] = places[1:]
	}
	return places[0]
}

// pending returns what is not answered yet, in order.
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
	}
	if ended := (*ownership.EndedError)(nil); errors.As(err, &ended) {
		r.Why, r.Note = leasekeeperv1.Why(ended.Why), ended.Note
	}
	return append(refused, r)
}
