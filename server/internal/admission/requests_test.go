package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// TestRequestsAreBoundedAsAList compares Requests with a list of open requests that is counted again for each one.
func TestRequestsAreBoundedAsAList(t *testing.T) {
	users := []Identity{"", "user a", "user b", "user c"}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		r := NewRequests(limit)
		var open []Identity
		count := func(user Identity) (n int) {
			for _, u := range open {
				if u == user {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				user := rapid.SampledFrom(users).Draw(t, "user")
				own := count(user)
				quarter := (limit - (len(open) - own) + 3) / 4 // rounded up
				fits := len(open) < limit && (user == "" || own == 0 || own < quarter)
				err := r.Begin(user)
				if (err == nil) != fits || err != nil && !errors.Is(err, replica.ErrTooManyRequests) {
					t.Fatalf("%q has %d of %d open requests, %d are allowed: %v", user, own, len(open), limit, err)
				}
				if err == nil {
					open = append(open, user)
				}
			},
			"end": func(t *rapid.T) {
				user := rapid.SampledFrom(users).Draw(t, "user")
				n := rapid.IntRange(0, count(user)).Draw(t, "n")
				r.End(user, n)
				var rest []Identity
				for _, u := range open {
					if u == user && n > 0 {
						n--
					} else {
						rest = append(rest, u)
					}
				}
				open = rest
			},
			"": func(t *rapid.T) {
				if r.Open() != int64(len(open)) {
					t.Fatalf("%d requests are open, the list has %d", r.Open(), len(open))
				}
				with := 0
				for _, user := range users[1:] {
					if n := count(user); n > 0 {
						with++
						if r.users[user] != int64(n) {
							t.Fatalf("%q has %d, the list %d", user, r.users[user], n)
						}
					}
				}
				if len(r.users) != with {
					t.Fatalf("%d users are remembered, of %d with requests", len(r.users), with)
				}
			},
		})
	})
}

// However many requests one user opens, each of several others can open one.
func TestOneUserLeavesRequestsToOthers(t *testing.T) {
	r := NewRequests(1000)
	opened := 0
	for r.Begin("user flood") == nil {
		opened++
	}
	if opened != 250 {
		t.Errorf("a lone user opens %d of 1000 requests", opened)
	}
	for i := range 100 {
		if err := r.Begin(Identity(fmt.Sprintf("user %d", i))); err != nil {
			t.Fatalf("user %d: %v", i, err)
		}
	}
}

// incoming returns the context of the request that a member sends with a context.
func incoming(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(context.Background(), sent)
}

func incomingOf(who Identity) context.Context {
	return metadata.NewIncomingContext(context.Background(), who.Metadata())
}

// A request that a member or the gateway passes on keeps the user of its client. What a client says of itself counts nothing.
func TestForwardedRequestKeepsItsUser(t *testing.T) {
	client := WithUser(context.Background(), "alice")
	sent := incoming(WithIdentity(client))
	for what, c := range map[string]struct {
		ctx      context.Context
		identity Identity
		user     Identity
	}{
		"here":                     {client, "user alice", "user alice"},
		"at the leader":            {MarkPeerRequest(sent), "user alice", "user alice"},
		"forwarded once more":      {MarkPeerRequest(incoming(WithIdentity(MarkPeerRequest(sent)))), "user alice", "user alice"},
		"from a client":            {sent, "", ""},
		"of no user, forwarded":    {MarkPeerRequest(incoming(WithIdentity(context.Background()))), "", ""},
		"of an address, forwarded": {MarkPeerRequest(incomingOf(Identity("10.0.0.1"))), "10.0.0.1", ""},
		"through the gateway":      {MarkGatewayRequest(WithUser(context.Background(), "bob")), "user bob", "user bob"},
	} {
		if got := IdentityOf(c.ctx); got != c.identity {
			t.Errorf("%s: the identity is %q, want %q", what, got, c.identity)
		}
		if got := UserOf(c.ctx); got != c.user {
			t.Errorf("%s: the user is %q, want %q", what, got, c.user)
		}
	}
}
