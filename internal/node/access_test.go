package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// asUser returns a context for requests of a user, as a server identifies it by the present policy.
func asUser(t *testing.T, n *Node, user string) context.Context {
	return As(t.Context(), access.Caller{User: user, Revision: n.Access().Revision()})
}

// withAccess adds root and a user u with the right to write keys that begin with k and to hold all names, and enables access.
func withAccess(t *testing.T, n *Node) {
	t.Helper()
	for _, c := range []access.Command{
		access.AddUser{Name: access.Root}, access.GrantRole{User: access.Root, Role: access.Root},
		access.AddUser{Name: "u", Hash: []byte("H")}, access.AddRole{Name: "r"}, access.GrantRole{User: "u", Role: "r"},
		access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: access.ReadWrite, Key: "k", End: "l"}},
		access.GrantRight{Role: "r", Right: access.Right{Rights: access.Hold}},
		access.Enable{},
	} {
		if _, err := n.ChangeAccess(t.Context(), c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
}

// Every way to change something takes the caller from the context.
func TestRequestsCarryTheCallerOfTheirContext(t *testing.T) {
	n := startNode(t, t.TempDir())
	withAccess(t, n)
	requests := map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			_, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte("k")})
			return err
		},
		"a bulk put": func(ctx context.Context) error {
			_, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte("k"), Value: make([]byte, 64<<10)})
			return err
		},
		"txn": func(ctx context.Context) error {
			_, _, err := n.Txn(ctx, keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.PutRequest{Key: []byte("k")}}}, false)
			return err
		},
		"grant": func(ctx context.Context) error {
			_, _, err := n.Grant(ctx, 0, time.Minute)
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := n.Claim(ctx, ownership.Claim{Lease: 7, Name: "n", TTL: time.Minute})
			return err
		},
		"hold": func(ctx context.Context) error {
			answers := make(chan []HoldAnswer, 1)
			op := ownership.Claim{Lease: 8, Name: "m", TTL: time.Minute}
			if err := n.Hold(ctx, n.WatchClaims(make(chan struct{}, 1)), []entry.Command{op}, func(a []HoldAnswer) { answers <- a }); err != nil {
				return err
			}
			return (<-answers)[0].Err
		},
		"renewal": func(ctx context.Context) error {
			if _, err := n.Claim(asUser(t, n, "u"), ownership.Claim{Lease: 7, Name: "n", TTL: time.Minute}); err != nil {
				return err
			}
			answers := make(chan error, 1)
			err := n.Renew(ctx, []lessor.ID{7}, func(_ replica.Header, r []replica.RenewedLease) { answers <- r[0].Err })
			if err != nil {
				return err
			}
			return <-answers
		},
	}
	for name, request := range requests {
		if err := request(t.Context()); !errors.Is(err, access.ErrUserEmpty) {
			t.Errorf("%s of nobody: %v", name, err)
		}
		if err := request(asUser(t, n, "u")); err != nil {
			t.Errorf("%s of a user: %v", name, err)
		}
	}
}

// The member passes a token on before it answers, and before it says that it has applied the entry.
func TestLoginIsPassedOnBeforeItIsAnswered(t *testing.T) {
	var mu sync.Mutex
	var got []access.Login
	n := startNodeWith(t, Config{Dir: t.TempDir(), LoggedIn: func(logins []access.Login) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, logins...)
	}})
	if _, _, err := n.Login(t.Context(), access.Login{User: "u"}); !errors.Is(err, access.ErrNotEnabled) {
		t.Error(err)
	}
	withAccess(t, n)
	for i := range 20 {
		_, revision, err := n.Access().Password("u")
		if err != nil {
			t.Fatal(err)
		}
		login := access.Login{User: "u", Digest: [32]byte{byte(i)}, Revision: revision}
		index, _, err := n.Login(t.Context(), login)
		if err != nil || index == 0 || index > n.Applied() {
			t.Fatalf("logged in by entry %d of %d: %v", index, n.Applied(), err)
		}
		mu.Lock()
		if len(got) != i+1 || got[i] != login {
			t.Fatalf("the member passed on %v", got)
		}
		mu.Unlock()
	}
}
