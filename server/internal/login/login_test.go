package login

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// apply carries commands out.
func apply(t *testing.T, p *access.Policy, commands ...access.Command) *access.Policy {
	t.Helper()
	for _, c := range commands {
		next, err := p.Apply(c)
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		p = next
	}
	return p
}

// policyOf returns a policy with the users root and u.
func policyOf(t *testing.T) *access.Policy {
	t.Helper()
	return apply(t, nil, access.AddUser{Name: access.Root, Hash: []byte("h")}, access.GrantRole{User: access.Root, Role: access.Root},
		access.AddUser{Name: "u", Hash: []byte("h")}, access.AddUser{Name: "v", Hash: []byte("h")}, access.Enable{})
}

// fakeMember applies logins at once.
type fakeMember struct {
	t      *testing.T
	policy *access.Policy
	index  uint64
	learn  func([]access.Login)
	lags   func(index uint64) bool // whether the member never applies an entry
}

func newFakeMember(t *testing.T) *fakeMember {
	return &fakeMember{t: t, policy: policyOf(t), learn: func([]access.Login) {}, lags: func(uint64) bool { return false }}
}

func (m *fakeMember) Access() *access.Policy { return m.policy }

func (m *fakeMember) Login(_ context.Context, c access.Login) (uint64, error) {
	if _, err := m.policy.Apply(c); err != nil {
		return 0, err
	}
	m.index++
	m.learn([]access.Login{c})
	return m.index, nil
}

func (m *fakeMember) AwaitApplied(_ context.Context, index uint64) bool { return !m.lags(index) }

func newSimple(t *testing.T) (*fakeMember, *Simple) {
	m, logins := newFakeMember(t), NewLogins(time.Minute)
	m.learn = logins.Learn
	return m, NewSimple(m, logins)
}

func TestSimpleTokenIsItsUsers(t *testing.T) {
	_, s := newSimple(t)
	token := issue(t, s)
	wantHolder(t, "its token", s, token, true)
	text, _, _ := strings.Cut(token, ".")
	for _, forged := range []string{"", ".", text, text + ".", text + ".x", text + "x.1", "." + text, text[:20] + ".1", text + "." + strings.Repeat("0", maxTokenBytes) + "1", strings.Repeat("x", maxTokenBytes) + ".1"} {
		wantHolder(t, fmt.Sprintf("%q", forged), s, forged, false)
	}
	if second := issue(t, s); second == token {
		t.Error("two tokens are the same")
	}
}

// A token lasts for the TTL after its last use.
func TestSimpleTokenLastsWhileItIsUsed(t *testing.T) {
	_, s := newSimple(t)
	token := issue(t, s)
	now := time.Now()
	s.logins.now = func() time.Time { return now }
	for range 5 {
		now = now.Add(59 * time.Second)
		wantHolder(t, "used within the TTL", s, token, true)
	}
	now = now.Add(time.Minute + time.Second)
	wantHolder(t, "not used for the TTL", s, token, false)
	issue(t, s)
	if n := s.logins.Len(); n != 1 {
		t.Errorf("%d logins are remembered after the TTL", n)
	}
}

// Whatever ends a user's token ends it at once: another password, a removal, access that was disabled.
func TestSimpleTokenEndsWithWhatItRestsOn(t *testing.T) {
	for what, test := range map[string]struct {
		commands []access.Command
		want     bool
	}{
		"another user's password": {[]access.Command{access.ChangePassword{Name: "v", Hash: []byte("x")}}, true},
		"another role":            {[]access.Command{access.AddRole{Name: "r"}, access.GrantRole{User: "u", Role: "r"}}, true},
		"another password":        {[]access.Command{access.ChangePassword{Name: "u", Hash: []byte("h")}}, false},
		"removed":                 {[]access.Command{access.DeleteUser{Name: "u"}}, false},
		"removed and added again": {[]access.Command{access.DeleteUser{Name: "u"}, access.AddUser{Name: "u", Hash: []byte("h")}}, false},
		"disabled and enabled":    {[]access.Command{access.Disable{}, access.Enable{}}, false},
	} {
		m, s := newSimple(t)
		token := issue(t, s)
		m.policy = apply(t, m.policy, test.commands...)
		caller, err := s.Verify(t.Context(), token)
		if (err == nil) != test.want || test.want && caller != (access.Caller{User: "u", Revision: m.policy.Revision()}) {
			t.Errorf("%s: %+v, %v", what, caller, err)
		}
	}
}

// A member that has not applied a login yet waits for it.
func TestMemberWaitsForTheEntryOfAToken(t *testing.T) {
	m, s := newSimple(t)
	var late []access.Login
	m.learn = func(logins []access.Login) { late = logins }
	token := issue(t, s)
	m.lags = func(index uint64) bool {
		if index == 1 {
			s.logins.Learn(late)
		}
		return index != 1
	}
	wantHolder(t, "applied while the request waits", s, token, true)
	m.lags = func(index uint64) bool {
		if index == 99 {
			t.Error("the member waits although it knows the token")
		}
		return true
	}
	text, _, _ := strings.Cut(token, ".")
	wantHolder(t, "known, whatever the index", s, text+".99", true)
	wantHolder(t, "never applied", s, "x.100", false)
}

func TestTokenOfAnEarlierPolicyIsNotIssued(t *testing.T) {
	m, s := newSimple(t)
	if _, err := s.Issue(t.Context(), "u", m.policy.Revision()-1); !errors.Is(err, access.ErrOldRevision) {
		t.Errorf("issued by an earlier policy: %v", err)
	}
}

// A user that logs in without end costs others no token.
func TestLoginsAreBoundedByUser(t *testing.T) {
	l := NewLogins(time.Minute)
	one := access.Login{User: "one", Digest: [32]byte{1}}
	l.Learn([]access.Login{one, one})
	for i := range maxUserLogins + 10 {
		l.Learn([]access.Login{{User: "many", Digest: [32]byte{2, byte(i), byte(i >> 8)}}})
	}
	if n := l.Len(); n != maxUserLogins+1 {
		t.Errorf("%d logins are remembered", n)
	}
	if _, ok := l.use(one.Digest); !ok {
		t.Error("the other user's token is forgotten")
	}
	if _, ok := l.use([32]byte{2, 9}); ok {
		t.Error("the oldest token is remembered")
	}
	for i := range maxLogins {
		l.Learn([]access.Login{{User: fmt.Sprint(i), Digest: [32]byte{3, byte(i), byte(i >> 8), byte(i >> 16)}}})
	}
	if n := l.Len(); n != maxLogins {
		t.Errorf("%d logins are remembered", n)
	}
	if _, ok := l.use(one.Digest); ok {
		t.Error("the oldest token of all is remembered")
	}
}

func TestPasswordsMatchTheirHash(t *testing.T) {
	p := NewPasswords(MinCost)
	hash, err := p.Hash(t.Context(), "client", "secret")
	if err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		hash     []byte
		password string
		want     bool
	}{
		"its password": {hash, "secret", true}, "another": {hash, "Secret", false}, "none": {hash, "", false}, "no hash": {nil, "secret", false},
		"no hash, no password": {nil, "", false},
	} {
		if ok, err := p.Matches(t.Context(), "client", test.hash, test.password); ok != test.want || err != nil {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
	if _, err := p.Matches(t.Context(), "client", []byte("no hash"), "secret"); err == nil {
		t.Error("a damaged hash is no error")
	}
	if _, err := p.Hash(t.Context(), "client", strings.Repeat("x", 73)); !errors.Is(err, ErrLongPassword) {
		t.Errorf("a long password: %v", err)
	}
	if cost, err := bcrypt.Cost(hash); cost != MinCost || err != nil {
		t.Errorf("cost %d, %v", cost, err)
	}
}

// A quarter of the processors, and one at least, work on passwords at a time. Further clients wait for a turn. A client that
// gives up meanwhile gets no answer.
func TestPasswordsWaitForATurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors, atOnce := range map[int]int{1: 1, 4: 1, 7: 1, 8: 2, 32: 8} {
		runtime.GOMAXPROCS(processors)
		synctest.Test(t, func(t *testing.T) {
			p := NewPasswords(MinCost)
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			for i := range atOnce {
				end, err := keyspace.TakeTurn(keyspace.InTurn(gone, p.turns, "another")) // it succeeds only if a turn is free
				if err != nil {
					t.Fatalf("%d processors: turn %d of %d is not free: %v", processors, i+1, atOnce, err)
				}
				defer end()
			}
			if hash, err := p.Hash(gone, "client", "secret"); err == nil {
				t.Errorf("%d processors: hash %q without a turn", processors, hash)
			}
			if ok, err := p.Matches(gone, "client", nil, "secret"); err == nil {
				t.Errorf("%d processors: matches without a turn: %v", processors, ok)
			}
			wantWaiting(t, p)
		})
	}
}

// wantWaiting checks that clients wait until their context ends. Others have all turns.
func wantWaiting(t *testing.T, p *Passwords) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error, 2)
	go func() { _, err := p.Hash(ctx, "client", "secret"); answers <- err }()
	go func() { _, err := p.Matches(ctx, "client", nil, "secret"); answers <- err }()
	if synctest.Wait(); len(answers) > 0 {
		t.Errorf("%d clients did not wait", len(answers))
	}
	cancel()
	for range 2 {
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("a client that gave up: %v", err)
		}
	}
}
