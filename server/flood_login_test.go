package server

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// logins are the requests of a flood of logins. A wrong password, and a user that does not exist, cost the server as much as a right
// password.
var logins = []struct {
	user, password string
	proven         bool // with a token of the user alice
	want           error
}{
	{"alice", "wrong", false, rpctypes.ErrGRPCAuthFailed},
	{"alice", "alice", false, nil},
	{"nosuch", "wrong", false, rpctypes.ErrGRPCAuthFailed},
	{"alice", "alice", true, nil},
	{"alice", "wrong", true, rpctypes.ErrGRPCAuthFailed},
}

// startLogins sends logins from many goroutines until stop is called. Each must get its own answer, however many others wait.
func (l *flood) startLogins() (stop func()) {
	l.f.t.Helper()
	nobody, end := context.WithCancel(l.f.t.Context())
	token, _ := metadata.FromOutgoingContext(l.ctx)
	alice := metadata.NewOutgoingContext(nobody, token)
	var callers sync.WaitGroup
	for i := range floodConns * floodCallers {
		auth := pb.NewAuthClient(l.conns[i%floodConns])
		callers.Go(func() {
			for n := i; nobody.Err() == nil; n++ {
				one := logins[n%len(logins)]
				ctx := nobody
				if one.proven {
					ctx = alice
				}
				_, err := auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: one.user, Password: one.password})
				switch status.Code(err) {
				case codes.Canceled, codes.Unavailable, codes.DeadlineExceeded: // the end of the test, or no leader for a moment
				default:
					l.note(err)
					wantStatus(l.f.t, err, one.want)
				}
			}
		})
	}
	return func() { end(); callers.Wait() }
}

// login logs in as the bystander, with the right password and with a wrong one: with its token, and as anybody from the address
// of the flood.
func (b *bystander) login() {
	b.t.Helper()
	for _, ctx := range []context.Context{b.ctx, b.t.Context()} {
		b.try("a login", func() error {
			_, err := b.f.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: "bare", Password: "bare"})
			return err
		})
		b.try("a login with a wrong password", func() error {
			_, err := b.f.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: "bare", Password: "wrong"})
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded:
				return err
			}
			wantStatus(b.t, err, rpctypes.ErrGRPCAuthFailed)
			return nil
		})
	}
}

// hashing returns the number of goroutines that hash a password at this moment.
func hashing() (n int) {
	stacks := make([]byte, 16<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "golang.org/x/crypto/bcrypt.") {
			n++
		}
	}
	return n
}

// mustBearLogins floods one front with logins, and works at each of the fronts as another user. Each front is of a member of its
// own.
func mustBearLogins(t *testing.T, at *front, fronts ...*front) {
	at.addUsers()
	at.grantRight("", hold)
	_, err := at.auth.UserGrantRole(at.as("root"), &pb.AuthUserGrantRoleRequest{User: "bare", Role: "half"})
	wantOK(t, err)
	l := &flood{f: at, ctx: at.unlimited("alice")}
	for i := range l.conns {
		l.conns[i] = dial(t, at.server.Addr())
	}
	others := bystanders(t, fronts)
	most := max(1, runtime.GOMAXPROCS(0)/4) * len(fronts)
	stop := l.startLogins()
	defer stop()
	for _, b := range others {
		b.work(1)
		b.login()
	}
	samples, seen := 0, 0
	eventually(t, "the flood hashes passwords", func() bool {
		n := hashing()
		if n > most {
			t.Fatalf("%d passwords are hashed at a time, want at most %d", n, most)
		}
		samples++
		seen += n
		return samples >= 10 && seen > 0 && l.sent.Load() >= floodConns*floodCallers
	})
	stop()
	for _, b := range others {
		if _, err := b.f.lease.LeaseRevoke(b.ctx, &pb.LeaseRevokeRequest{ID: b.lease}); err != nil {
			t.Errorf("the lease of a bystander is lost: %v", err)
		}
	}
}

// A user that logs in without end, with right and wrong passwords, hurts no other: of another user no put, renewal, claim,
// release or login is refused. However many logins wait, a quarter of the processors hash passwords, and one at least.
func TestFloodOfLoginsHurtsNoOther(t *testing.T) {
	patient := anyPort()
	patient.RequestTimeout = 10 * waitLimit
	t.Run("alone", func(t *testing.T) {
		f := startConfiguredWithUsers(t, patient)
		mustBearLogins(t, f, f)
	})
	t.Run("cluster", func(t *testing.T) {
		tr := startTrioWith(t, waitLimit, patient)
		leader, follower := tr.leader()
		mustBearLogins(t, follower.front, follower.front, leader.front)
	})
}
