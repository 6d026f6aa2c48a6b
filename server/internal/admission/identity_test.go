package admission

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestIdentityOfAnAddressOmitsPortAndInterfaceID(t *testing.T) {
	for address, want := range map[string]Identity{
		"10.1.2.3:4711":             "10.1.2.3",
		"10.1.2.3:4712":             "10.1.2.3",
		"[::ffff:10.1.2.3]:80":      "10.1.2.3",
		"[2001:db8:1:2:aaaa::1]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2:bbbb::1]:80": "2001:db8:1:2::/64",
		"[::1]:80":                  "::1",
		"[fe80::1%eth0]:80":         "fe80::/64",
		"bufconn":                   "bufconn",
		"leases.example.org:80":     "leases.example.org",
	} {
		if got := IdentityOfAddress(address); got != want {
			t.Errorf("%s has the identity %q, want %q", address, got, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/acquire", nil)
	r.RemoteAddr = "10.9.8.7:1"
	if got := IdentityOfRequest(r); got != "10.9.8.7" {
		t.Errorf("a request over HTTP has the identity %q", got)
	}
}

func TestIdentityMetadataIsAcceptedOnlyFromPeersAndGateway(t *testing.T) {
	named := metadata.NewIncomingContext(context.Background(), Identity("somebody else").Metadata())
	if got := IdentityOf(named); got != "" {
		t.Errorf("a client chooses the identity %q", got)
	}
	for way, ctx := range map[string]context.Context{"a peer": MarkPeerRequest(named), "the gateway": MarkGatewayRequest(named)} {
		if got := IdentityOf(ctx); got != "somebody else" {
			t.Errorf("of a request from %s the identity is %q", way, got)
		}
	}
}
