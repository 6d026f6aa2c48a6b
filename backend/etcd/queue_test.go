package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// mutex follows etcd's recipe to the letter, as its Go client does.
type mutex struct {
	s   *store
	pfx string
	id  int64
	key string
	rev int64
}

func mutexOf(s *store, name string) *mutex {
	id := s.Grant(60)
	s.T.Cleanup(func() { s.Lease.LeaseRevoke(limited(s.T), &pb.LeaseRevokeRequest{ID: id}) })
	return &mutex{s: s, pfx: name + "/", id: id, key: fmt.Sprintf("%s/%x", name, id)}
}

// acquire enters the queue and reports whether it is first.
func (m *mutex) acquire() bool {
	m.s.T.Helper()
	rangeOp := func(r *pb.RangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	}
	first := rangeOp(&pb.RangeRequest{
		Key: []byte(m.pfx), RangeEnd: []byte(strings.TrimSuffix(m.pfx, "/") + "0"), Limit: 1,
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	})
	resp, err := m.s.KV.Txn(limited(m.s.T), &pb.TxnRequest{
		Compare: []*pb.Compare{{Target: pb.Compare_CREATE, Key: []byte(m.key), TargetUnion: &pb.Compare_CreateRevision{}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(m.key), Lease: m.id}}}, first},
		Failure: []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: []byte(m.key)}), first},
	})
	ok(m.s.T, err)
	if m.rev = resp.Header.Revision; !resp.Succeeded {
		m.rev = resp.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	return resp.Responses[1].GetResponseRange().Kvs[0].CreateRevision == m.rev
}

func TestLocksOfEtcdsClientExcludeClaims(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("recipe")
	m := mutexOf(s, name)
	if !m.acquire() {
		t.Fatal("the mutex is not free")
	}
	var held *backend.HeldError
	_, _, err := b.Claim(limited(t), newClaim(name, false))
	if !errors.As(err, &held) || int64(held.Token) != m.rev || !strings.Contains(held.Holder.ID, fmt.Sprintf("%x", m.id)) {
		t.Errorf("%+v, %v", held, err)
	}
	l := enqueue(t, b, name)
	s.Delete(m.key)
	g, err := b.Await(limited(t), l)
	ok(t, err)
	if m.acquire() {
		t.Error("the mutex is acquired while the name is held")
	}
	ok(t, b.Release(limited(t), l))
	if !m.acquire() {
		t.Error("released, and the mutex is not acquired")
	}
	if m.rev <= int64(g.Token) {
		t.Errorf("tokens %d, %d", g.Token, m.rev)
	}
	// The lease of another program may stand for other keys: they stay.
	s.Put(name+"-other", "", m.id)
	_, _, err = b.Resume(limited(t), name, backend.Token(m.rev), backend.Holder{ID: "x"})
	is(t, err, backend.ErrUnsupported)
	is(t, b.Revoke(limited(t), name, 0, "", false), backend.ErrUnsupported)
	ok(t, b.Revoke(limited(t), name, backend.Token(m.rev), "", true))
	s.None(name)
	if len(s.Keys(name+"-other")) != 1 {
		t.Error("other keys of that lease are gone")
	}
}

func TestEtcdctlLockWaitsForTheHolder(t *testing.T) {
	if *etcdctl == "" {
		t.Skip("needs etcdctl: conformance runs this with it")
	}
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("etcdctl")
	l, _ := hold(t, b, name)
	cmd := exec.Command(*etcdctl, "--endpoints", s.Addr, "lock", name, "echo", "it is mine")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	ok(t, cmd.Start())
	eventually(t, "etcdctl is queued", func() bool { return len(s.Keys(name+"/")) == 2 })
	if out.Len() > 0 {
		t.Errorf("etcdctl has the lock: %s", out.String())
	}
	w := enqueue(t, b, name)
	ok(t, b.Release(limited(t), l))
	_, err := b.Await(limited(t), w)
	ok(t, err)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "it is mine") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// A key is in the queue of a name only if it lies directly below it, and is attached to the lease that it is named after.
func TestOnlyKeysOfTheRecipeAreQueued(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("jobs")
	id := s.Grant(60)
	s.Put(name+"/notes", "x", 0)
	s.Put(name+"/cafe", "bound to nothing", 0)
	s.Put(name+"/beef", "bound to another", id)
	s.Put(fmt.Sprintf("%s/%X", name, id), "capitals, or no letter at all", 0)
	s.Put(fmt.Sprintf("%s/0%x", name, id), "a zero too many", id)
	s.Put(fmt.Sprintf("%s/nightly/%x", name, id), "too deep", id)
	s.Put(name, "the name itself", id)
	for i := range 150 {
		s.Put(fmt.Sprintf("%s/%x", name, i+100), "more of them than are read at once", 0)
	}
	hold(t, b, name+"/nightly/x")
	for _, wait := range []bool{false, true} {
		l, g, err := b.Claim(limited(t), newClaim(name, wait))
		ok(t, err)
		if !g.Held {
			t.Errorf("%+v", g)
		}
		info, err := b.Get(limited(t), name)
		if err != nil || !info.Held || info.Token != g.Token {
			t.Errorf("%+v, %v", info, err)
		}
		w := enqueue(t, b, name)
		ok(t, b.Release(limited(t), l))
		_, err = b.Await(limited(t), w)
		ok(t, err)
		ok(t, b.Release(limited(t), w))
	}
	// A key of the recipe among them holds the name, though others are older.
	m := mutexOf(s, name)
	m.acquire()
	_, g, err := b.Claim(limited(t), newClaim(name, true))
	if err != nil || g.Held {
		t.Errorf("%+v, %v", g, err)
	}
	_, _, err = b.Claim(limited(t), newClaim(name, false))
	is(t, err, backend.ErrHeld)
}

// A waiter receives its place in the queue.
func TestWaitersHavePlacesInTheQueue(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("places")
	hold(t, b, name)
	for want := 1; want <= 3; want++ {
		_, g, err := b.Claim(limited(t), newClaim(name, true))
		if err != nil || g.Held || g.Place != want || g.Token != 0 || g.TTL != usualTTL {
			t.Errorf("%d: %+v, %v", want, g, err)
		}
	}
	if info, err := b.Get(limited(t), name); err != nil || info.Waiting != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Other processes create keys below the name between the read and the claim.
func TestClaimGivesUpWhenTheQueueKeepsChanging(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("contention")
	n, bound := 0, 3
	f.Set(func(method string, req any) fault {
		if isMethod("Write", method, req) {
			if n++; n <= bound {
				s.Put(fmt.Sprint(name, "/deep/", bound, "/", n), "", 0)
			}
		}
		return pass
	})
	l, _ := hold(t, b, name)
	if n != 4 {
		t.Errorf("%d attempts", n)
	}
	ok(t, b.Release(limited(t), l))
	n, bound = 0, always
	claim := newClaim(name, false)
	_, _, err := b.Claim(limited(t), claim)
	is(t, err, backend.ErrContention)
	if s.Alive(etcd.LeaseIDOf(claim.ID)) || n > 20 {
		t.Errorf("the lease is left, after %d attempts", n)
	}
	// Another process takes the name at that moment.
	m := mutexOf(s, name)
	f.Set(func(method string, req any) fault {
		if isMethod("Write", method, req) {
			m.acquire()
		}
		return pass
	})
	claim = newClaim(name, false)
	_, _, err = b.Claim(limited(t), claim)
	is(t, err, backend.ErrHeld)
	if s.Alive(etcd.LeaseIDOf(claim.ID)) {
		t.Error("the lease is left")
	}
}

// A claim that is repeated continues its lease, whose TTL counts from the repetition.
func TestRepeatedClaimRenewsItsLease(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	claim := newClaim(unique("again"), true)
	claim.TTL = 4 * time.Second
	_, g, err := b.Claim(limited(t), claim)
	ok(t, err)
	time.Sleep(2 * time.Second)
	_, again, err := b.Claim(limited(t), claim)
	ok(t, err)
	left, err := s.Lease.LeaseTimeToLive(limited(t), &pb.LeaseTimeToLiveRequest{ID: etcd.LeaseIDOf(claim.ID)})
	ok(t, err)
	if again.Token != g.Token || again.TTL != claim.TTL || left.TTL < 3 {
		t.Errorf("%+v, and %d seconds are left", again, left.TTL)
	}
	// With another name it is another claim.
	other := claim
	other.Name += "-other"
	_, _, err = b.Claim(limited(t), other)
	is(t, err, backend.ErrInvalid)
	if keys := s.Keys(claim.Name + "/"); len(keys) != 1 {
		t.Errorf("and it harmed the first: %v", keys)
	}
	s.None(other.Name)
}

// The key that a claim would put belongs to another claim.
func TestClaimWithATakenIDIsRefused(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	for i, value := range []string{"", "", `{"claim":"00","holder":"h"}`, `{"claim":"00","holder":"h"}`} {
		claim := newClaim(unique("taken"), i%2 == 0)
		id := etcd.LeaseIDOf(claim.ID)
		_, err := s.Lease.LeaseGrant(limited(t), &pb.LeaseGrantRequest{ID: id, TTL: 60})
		ok(t, err)
		s.Put(fmt.Sprintf("%s/%x", claim.Name, id), value, id)
		_, _, err = b.Claim(limited(t), claim)
		is(t, err, backend.ErrInvalid)
		if !s.Alive(id) {
			t.Error("the lease of another claim was ended")
		}
	}
}

// Await notices if its own key, or the key before it, is deleted while the watch starts.
func TestAwaitSeesDeletionsDuringItsStart(t *testing.T) {
	s := startStore(t)
	for what, sent := range map[string]int{"before the watch stands": 1, "after": 2} {
		for own, kind := range map[bool]error{true: backend.ErrLost, false: nil} {
			t.Run(fmt.Sprint(what, own), func(t *testing.T) {
				f := new(faults)
				b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
				name := unique("missed")
				holder, _ := hold(t, b, name)
				l := enqueue(t, b, name)
				key := keyOf(t, holder)
				if own {
					key = keyOf(t, l)
				}
				watches := 0
				f.Sends(func(string, any) error {
					if watches++; watches == 1 && sent == 1 {
						s.Delete(key)
					}
					return nil
				})
				created := 0
				var deleting sync.WaitGroup
				defer deleting.Wait()
				f.Answers(func(_ string, msg any) {
					if r, ok := msg.(*pb.WatchResponse); ok && r.Created {
						if created++; created == watches && sent == 2 {
							deleting.Go(func() { s.Delete(key) })
						}
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // less than the TTL
				defer cancel()
				_, err := b.Await(ctx, l)
				if kind == nil {
					ok(t, err)
				} else {
					is(t, err, kind)
				}
			})
		}
	}
}

// Deeper keys come and go below the name, and history is compacted, while a claim waits.
func TestAwaitIgnoresKeysOutsideTheQueue(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b := open(t, p.Addr())
	name := unique("noise")
	holder := open(t, s.Addr)
	held, _ := hold(t, holder, name)
	l := enqueue(t, b, name)
	turn := make(chan error, 1)
	go func() {
		_, err := b.Await(limited(t), l)
		turn <- err
	}()
	for i := range 20 {
		s.Put(fmt.Sprint(name, "/deep/", i), "", 0)
		s.Delete(fmt.Sprint(name, "/deep/", i-1))
		s.Compact()
		if i%5 == 4 {
			p.Cut()
		}
	}
	select {
	case err := <-turn:
		t.Fatalf("its turn came too early: %v", err)
	default:
	}
	ok(t, holder.Release(limited(t), held))
	ok(t, <-turn)
}

// A release wakes the next waiter, and no other.
func TestOnlyTheNextWaiterWakes(t *testing.T) {
	s := startStore(t)
	name := unique("herd")
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	l, _ := hold(t, b, name)
	turns := make(chan backend.Grant)
	ctx, cancel := context.WithCancel(t.Context())
	const many = 10
	for range many {
		w := enqueue(t, b, name)
		go func() {
			g, _ := b.Await(ctx, w)
			turns <- g
		}()
	}
	time.Sleep(300 * time.Millisecond) // all watch by now; otherwise the count below is larger
	f.Set(nil)
	ok(t, b.Release(limited(t), l))
	if g := <-turns; !g.Held {
		t.Errorf("%+v", g)
	}
	reads := f.Calls()["/etcdserverpb.KV/Txn"]
	if reads > 2 {
		t.Errorf("%d reads for one turn", reads)
	}
	cancel()
	for range many - 1 {
		<-turns
	}
	for _, kv := range s.Keys(name + "/") {
		s.Revoke(kv.Lease)
	}
}

func TestGateRefusesWritesAfterTheTenure(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("gate")
	l, g := hold(t, b, name)
	compare, err := etcd.Compare(l)
	ok(t, err)
	key, created, err := etcd.Key(l)
	ok(t, err)
	if created != int64(g.Token) || string(key) != fmt.Sprintf("%s/%x", name, idOf(t, l)) {
		t.Errorf("%s, %d: %+v", key, created, g)
	}
	write := func() bool {
		resp, err := s.KV.Txn(limited(t), &pb.TxnRequest{
			Compare: []*pb.Compare{compare},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(name)}}}},
		})
		ok(t, err)
		return resp.Succeeded
	}
	if !write() {
		t.Error("refused while it is held")
	}
	ok(t, b.Release(limited(t), l))
	if write() {
		t.Error("let through after the release")
	}
	hold(t, b, name)
	if write() {
		t.Error("let through under the next holder")
	}
	_, err = etcd.Compare(nil)
	is(t, err, backend.ErrInvalid)
	_, err = etcd.LeaseID(foreign{})
	is(t, err, backend.ErrInvalid)
}

type foreign struct{}

func (foreign) Name() string { return "foreign" }
