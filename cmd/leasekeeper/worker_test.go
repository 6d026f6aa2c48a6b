package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	longTTL  = 3600 // seconds; such a lease does not expire during the test
	shortTTL = 2    // seconds; such a lease expires, however often the server is killed

	// callLimit is much longer than a call takes, and than a server runs.
	callLimit = 20 * time.Second
)

// worker is one client in one round. It has one request in progress at a time. It records each request in the ledger
// before it sends it, and then the answer. It ends at the first request without an answer.
type worker struct {
	stubs
	book          *ledger
	round, number int
	chance        *rand.Rand
	serial        int
	ctx           context.Context
}

func (w *worker) cancelOnReturn(ctx context.Context) context.CancelFunc {
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(ctx, callLimit)
	return cancel
}

// fresh returns a unique name.
func (w *worker) fresh(what string) string {
	w.serial++
	return fmt.Sprintf("%s/%d/%d/%d", what, w.round, w.number, w.serial)
}

// writes puts keys that are written once, and one key that it writes and deletes repeatedly.
func (w *worker) writes() {
	mine := fmt.Sprintf("again/%d", w.number)
	for {
		ok := w.put(w.fresh("once"), 0)
		switch {
		case ok && w.chance.IntN(5) == 0:
			ok = w.delete(mine)
		case ok:
			ok = w.put(mine, 0)
		}
		if !ok {
			return
		}
	}
}

func (w *worker) put(key string, lease int64) bool {
	value := fmt.Sprint(w.chance.Uint64())
	floor := w.book.writing(key, &value, lease)
	resp, err := w.kv.Put(w.ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease})
	if err != nil {
		return w.book.refused(err, lease, key)
	}
	w.book.written(key, resp.Header.Revision, floor)
	return true
}

func (w *worker) delete(key string) bool {
	floor := w.book.writing(key, nil, 0)
	resp, err := w.kv.DeleteRange(w.ctx, &pb.DeleteRangeRequest{Key: []byte(key)})
	if err != nil {
		return w.book.refused(err, 0, key)
	}
	if resp.Deleted == 0 { // the key did not exist, so the server made no revision
		floor = -1
	}
	w.book.written(key, resp.Header.Revision, floor)
	return true
}

// leases grants long leases, under ids that it or the server chooses. It attaches keys to them, renews some and revokes
// some.
func (w *worker) leases() {
	for {
		var wanted int64
		if w.chance.IntN(2) == 0 {
			wanted = w.chance.Int64N(1<<40) + 1
		}
		id, ok := w.grant(wanted, longTTL)
		for ok && w.chance.IntN(3) > 0 {
			ok = w.put(w.fresh("leased"), id)
		}
		if ok && w.chance.IntN(2) == 0 {
			ok = w.renew(id)
		}
		if ok && w.chance.IntN(3) == 0 {
			ok = w.revoke(id)
		}
		if !ok {
			return
		}
	}
}

// shortLeases grants leases that no client renews.
func (w *worker) shortLeases() {
	for {
		id, ok := w.grant(0, shortTTL)
		if !ok || !w.put(w.fresh("brief"), id) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *worker) grant(wanted, ttl int64) (id int64, ok bool) {
	sent := w.book.granting(wanted)
	resp, err := w.lease.LeaseGrant(w.ctx, &pb.LeaseGrantRequest{ID: wanted, TTL: ttl})
	if err != nil {
		return 0, w.book.refused(err, 0, "grant")
	}
	w.book.granted(wanted, resp.ID, resp.TTL, sent)
	return resp.ID, true
}

func (w *worker) renew(id int64) bool {
	stream, err := w.lease.LeaseKeepAlive(w.ctx)
	if err != nil {
		return w.book.refused(err, 0, "renew")
	}
	sent := time.Now()
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return false // the connection is lost
	}
	resp, err := stream.Recv()
	if err != nil {
		return w.book.refused(err, 0, "renew")
	}
	w.book.renewed(id, resp.TTL, sent)
	return stream.CloseSend() == nil
}

func (w *worker) revoke(id int64) bool {
	w.book.revoking(id)
	resp, err := w.lease.LeaseRevoke(w.ctx, &pb.LeaseRevokeRequest{ID: id})
	if err != nil {
		return w.book.refused(err, 0, "revoke")
	}
	w.book.revoked(id, resp.Header.Revision)
	return true
}
