package endpointstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// foreignListed is how many locks a test lists. Other tests may hold some in the same store.
const foreignListed = 10_000

// ForeignBackend is a backend that lists locks of other programs.
type ForeignBackend interface {
	backend.Backend
	backend.ForeignLister
}

// ForeignLocksBelow returns the locks of other programs whose names begin with a prefix.
func ForeignLocksBelow(t testing.TB, b backend.ForeignLister, prefix string) []backend.ForeignLock {
	t.Helper()
	all, more, err := b.ForeignLocks(Limited(t), foreignListed)
	OK(t, err)
	if more {
		t.Errorf("the store has more than %d locks", len(all))
	}
	return slices.DeleteFunc(all, func(l backend.ForeignLock) bool { return !strings.HasPrefix(l.Name, prefix) })
}

// ListForeignLocks fails the test unless locks of etcd's recipe are listed, and other keys are not.
func ListForeignLocks(t *testing.T, s *Store, b ForeignBackend) {
	t.Helper()
	prefix := "/" + Unique("foreign") // no name of Leasekeeper begins with a slash
	first, second, third := s.Grant(60), s.Grant(90), s.Grant(60)
	key := func(name string, lease int64) string { return fmt.Sprintf("%s/%s/%x", prefix, name, lease) }
	s.Put(key("a", second), "leader of a", second)
	s.Put(key("a", first), "", first)
	token := s.Put(key("b", third), "", third)
	s.Put(key("a", second), "a new value", second) // an election proclaims: the key keeps its place
	s.Put(key("none", first), "", 0)               // without a lease
	s.Put(key("none", second), "", first)          // with another one
	s.Put(prefix+"/none/config", "", first)        // not named after a lease
	own, _ := Hold(t, b, Unique("own"))
	got := ForeignLocksBelow(t, b, prefix)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	a, other := got[0], got[1]
	if a.Name != prefix+"/a" || a.Holder != fmt.Sprintf("etcd lease %x", second) || a.Text != "a new value" || a.Waiting != 1 || a.TTL != 90*time.Second {
		t.Errorf("%+v", a)
	}
	if a.Remaining <= 0 || a.Remaining > a.TTL || a.Kind != b.ForeignKinds()[0] {
		t.Errorf("%+v", a)
	}
	if other.Name != prefix+"/b" || other.Token != backend.Token(token) || other.Waiting != 0 {
		t.Errorf("%+v", other)
	}
	all, _, err := b.ForeignLocks(Limited(t), foreignListed)
	OK(t, err)
	if slices.ContainsFunc(all, func(l backend.ForeignLock) bool { return strings.HasSuffix(l.Name, own.Name()) }) {
		t.Errorf("a holder that uses Leasekeeper is listed: %+v", all)
	}
	s.Revoke(second)
	if got = ForeignLocksBelow(t, b, prefix+"/a"); len(got) != 1 || got[0].Holder != fmt.Sprintf("etcd lease %x", first) || got[0].Waiting != 0 {
		t.Errorf("after the first has left: %+v", got)
	}
	if few, more, err := b.ForeignLocks(Limited(t), 1); err != nil || len(few) != 1 || !more {
		t.Errorf("one of many: %+v, %v, %v", few, more, err)
	}
	_, _, err = b.ForeignLocks(Limited(t), 0)
	Is(t, err, backend.ErrInvalid)
}
