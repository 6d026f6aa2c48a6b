package remote_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// A claim that is overtaken while it waits is still the same claim, under a later token: on its stream, and after the
// stream broke. Its lease is renewed and released, and raises the mark, as before.
func TestOvertakenClaimContinues(t *testing.T) {
	s := startStore(t)
	b, other := open(t, s.Addr), open(t, s.Addr)
	for what, await := range map[string]func(l backend.Lease) (backend.Grant, error){
		"on its stream":          func(l backend.Lease) (backend.Grant, error) { return b.Await(limited(t), l) },
		"after its stream broke": func(l backend.Lease) (backend.Grant, error) { return remote.AwaitWithoutTurn(b, limited(t), l) },
	} {
		name := unique("overtaken")
		l, held := hold(t, other, name)
		waiting := enqueue(t, b, name)
		urgent := newClaim(name, true)
		urgent.ID[5], urgent.Priority = 9, 7
		first, _, err := other.Claim(limited(t), urgent)
		ok(t, err)
		ok(t, other.Release(limited(t), l))
		next, err := other.Await(limited(t), first)
		ok(t, err)
		ok(t, other.Release(limited(t), first))
		last, err := await(waiting)
		ok(t, err)
		if !last.Held || last.Token <= next.Token || next.Token <= held.Token {
			t.Errorf("%s: the tokens are %d, %d and %d", what, held.Token, next.Token, last.Token)
		}
		if info, err := b.Get(limited(t), name); err != nil || info.Token != last.Token {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
		ok(t, renew(t, b, waiting).Err)
		ok(t, b.RaiseMark(limited(t), waiting, backend.TickNumber(1)))
		if m, err := b.Mark(limited(t), name); err != nil || m.Token != last.Token {
			t.Errorf("%s: the mark is %+v, %v", what, m, err)
		}
		if key, token, err := remote.Key(waiting); err != nil || token != int64(last.Token) {
			t.Errorf("%s: the gate compares %s with %d: %v", what, key, token, err)
		}
		ok(t, b.Release(limited(t), waiting))
	}
}
