//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// register is a key whose value one writer raises by one, again and again. It is linearizable if each read finds at least
// the value that was acknowledged or read before, and at most the value whose write has begun.
type register struct {
	key                string
	begun, acked, seen atomic.Int64
}

// raise sets a shared value to at least to.
func raise(v *atomic.Int64, to int64) {
	for {
		now := v.Load()
		if to <= now || v.CompareAndSwap(now, to) {
			return
		}
	}
}

// floor is the least value that a read may return if it begins now.
func (r *register) floor() int64 { return max(r.acked.Load(), r.seen.Load()) }

// write raises a register until the end.
func (l *load) write(r *register, first int) {
	for v := int64(1); !l.over(); v++ {
		r.begun.Store(v)
		if !l.call("a write of "+r.key, first, func(ctx context.Context, s stubs) error { return r.raiseTo(ctx, s, v) }) {
			return
		}
		r.acked.Store(v)
		if rand.IntN(5) == 0 {
			first++
		}
		l.pause(15 * time.Millisecond)
	}
}

// errLost is the error of a client that sees a broken promise.
type errLost struct{ text string }

func (e errLost) Error() string { return e.text }

// raiseTo makes one attempt to raise the register from v-1 to v. It also succeeds if an earlier attempt had done so.
func (r *register) raiseTo(ctx context.Context, s stubs, v int64) error {
	key := []byte(r.key)
	before := &pb.Compare{Key: key, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte(strconv.FormatInt(v-1, 10))}}
	if v == 1 {
		before = &pb.Compare{Key: key, Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{}}
	}
	put := &pb.PutRequest{Key: key, Value: []byte(strconv.FormatInt(v, 10))}
	done, err := s.kv.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{before},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
	})
	if err != nil || done.Succeeded {
		return err
	}
	found, err := value(done.Responses[0].GetResponseRange())
	if err == nil && found != v {
		err = errLost{fmt.Sprintf("%s holds %d, although %d was acknowledged", name(s.at), found, v-1)}
	}
	return err
}

// value returns the number that a read found; 0 if there is no key.
func value(r *pb.RangeResponse) (int64, error) {
	if len(r.GetKvs()) == 0 {
		return 0, nil
	}
	return strconv.ParseInt(string(r.Kvs[0].Value), 10, 64)
}

// look reads a register at one member. It returns an errLost if the value is impossible.
func (r *register) look(ctx context.Context, s stubs) error {
	floor := r.floor()
	answer, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte(r.key)})
	if err != nil {
		return err
	}
	v, err := value(answer)
	switch ceiling := r.begun.Load(); {
	case err != nil:
		return err
	case v < floor:
		return errLost{fmt.Sprintf("%s answers that %s is %d, and it was %d before (term %d, revision %d)", name(s.at), r.key, v, floor, answer.Header.RaftTerm, answer.Header.Revision)}
	case v > ceiling:
		return errLost{fmt.Sprintf("%s answers that %s is %d, and no more than %d was written", name(s.at), r.key, v, ceiling)}
	}
	raise(&r.seen, v)
	return nil
}

// read reads one register after the other at one member, until the end. Reads may be refused, and must not be wrong.
func (l *load) read(at int) {
	for i := 0; !l.over(); i++ {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), attemptLimit)
		err := l.registers[i%len(l.registers)].look(ctx, l.g.members[at].stubs)
		cancel()
		l.lasted("a read", began)
		if err != nil {
			l.tally.refused.Add(1)
			if !isTransient(err) {
				l.t.Errorf("a read: %v", err)
				return
			}
		}
		l.pause(5 * time.Millisecond)
	}
}

// finalReads reads every register at every member, after the faults.
func (l *load) finalReads() {
	for _, r := range l.registers {
		for at := range l.g.reach {
			l.call("the last read", at, func(ctx context.Context, s stubs) error { return r.look(ctx, s) })
		}
	}
}

// progress waits until every writer has an acknowledgement of a write that began after the call.
func (l *load) progress() {
	l.t.Helper()
	began := time.Now()
	var from [len(l.registers)]int64
	for i, r := range l.registers {
		from[i] = r.begun.Load()
	}
	for i, r := range l.registers {
		l.g.eventually("a write that began after the fault is acknowledged", func() bool { return r.acked.Load() > from[i] })
	}
	l.g.t.Logf("all writers make progress again after %v", time.Since(began).Round(time.Millisecond))
}
