package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// tokenKeys are the files of keys for JSON Web Tokens of a running server.
type tokenKeys struct {
	f               *front
	private, public string // paths
}

func newTokenKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	wantOK(t, err)
	return key
}

// replaceFile replaces a file in one step.
func replaceFile(t testing.TB, path string, text []byte) {
	t.Helper()
	wantOK(t, os.WriteFile(path+".new", text, 0o600))
	wantOK(t, os.Rename(path+".new", path))
}

func (k *tokenKeys) signWith(t *testing.T, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	wantOK(t, err)
	replaceFile(t, k.private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func (k *tokenKeys) verifyWith(t *testing.T, keys ...*ecdsa.PrivateKey) {
	t.Helper()
	var text []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		wantOK(t, err)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	replaceFile(t, k.public, text)
}

// as returns the context of a request with a token that a key has signed and that lasts longer than the test.
func (k *tokenKeys) as(key *ecdsa.PrivateKey, user string) context.Context {
	k.f.t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"username": user, "revision": k.f.node.Access().Revision(), "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(key)
	wantOK(k.f.t, err)
	return metadata.AppendToOutgoingContext(k.f.ctx(), "token", token)
}

// accepts returns how the server answers a request with a token that a key has signed.
func (k *tokenKeys) accepts(key *ecdsa.PrivateKey) error {
	_, err := k.f.kv.Range(k.as(key, "alice"), &pb.RangeRequest{Key: []byte("a")})
	return err
}

// issues reports whether the server signs tokens with a key.
func (k *tokenKeys) issues(key *ecdsa.PrivateKey) bool {
	resp, err := k.f.auth.Authenticate(k.f.ctx(), &pb.AuthenticateRequest{Name: "alice", Password: "alice"})
	wantOK(k.f.t, err)
	_, err = jwt.Parse(resp.Token, func(*jwt.Token) (any, error) { return &key.PublicKey, nil }, jwt.WithoutClaimsValidation())
	return err == nil
}

// The key for tokens is replaced by the steps of docs/users-and-roles.md, while the server runs. Tokens of both keys count in
// between, and in the end only those of the new one. Streams that were opened with the old key go on.
func TestTokenKeyIsReplacedUnderARunningServer(t *testing.T) {
	before, after, dir := newTokenKey(t), newTokenKey(t), t.TempDir()
	k := &tokenKeys{private: filepath.Join(dir, "private.pem"), public: filepath.Join(dir, "public.pem")}
	k.signWith(t, before)
	k.verifyWith(t, before)
	cfg := anyPort()
	cfg.AuthToken = "jwt,sign-method=ES256,ttl=1s,priv-key=" + k.private + ",pub-key=" + k.public
	f := startConfiguredWithUsers(t, cfg)
	k.f = f
	f.addUsers()
	_, err := f.names().GrantRight(k.as(before, "root"), &leasekeeperv1.GrantRightRequest{Role: "half", Prefix: "jobs/", Rights: []leasekeeperv1.NameRight{hold}})
	wantOK(t, err)

	renewals, err := f.names().Renew(k.as(before, "alice"))
	wantOK(t, err)
	keepAlive, err := f.lease.LeaseKeepAlive(k.as(before, "alice"))
	wantOK(t, err)
	holder, waiter := f.holderWith(k.as(before, "alice"), "first"), f.holderWith(k.as(before, "alice"), "second")
	holder.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{holder.claim("jobs/a", 81)}})
	holder.wants(1, leasekeeperv1.HoldAnswer_HELD)
	waiter.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{waiter.claim("jobs/a", 82)}})
	waiter.wants(1, leasekeeperv1.HoldAnswer_WAITING)
	number := uint64(0)
	renewed := func() {
		t.Helper()
		number++
		wantOK(t, renewals.Send(&leasekeeperv1.RenewRequest{Number: number, Leases: []int64{81, 82}}))
		resp, err := renewals.Recv()
		wantOK(t, err)
		wantEqual(t, "refused renewals", len(resp.Refused), 0)
		wantOK(t, keepAlive.Send(&pb.LeaseKeepAliveRequest{ID: 81}))
		one, err := keepAlive.Recv()
		wantOK(t, err)
		wantEqual(t, "TTL", one.TTL, 60)
	}
	renewed()

	wantStatus(t, k.accepts(after), rpctypes.ErrGRPCInvalidAuthToken)
	k.verifyWith(t, before, after)
	eventually(t, "tokens of the new key count", func() bool { return k.accepts(after) == nil })
	wantOK(t, k.accepts(before))
	renewed()
	k.signWith(t, after)
	eventually(t, "the server signs with the new key", func() bool { return k.issues(after) })
	wantOK(t, k.accepts(before))
	k.verifyWith(t, after)
	eventually(t, "the old key no longer counts", func() bool {
		return status.Convert(k.accepts(before)).Message() == status.Convert(rpctypes.ErrGRPCInvalidAuthToken).Message()
	})
	wantOK(t, k.accepts(after))
	renewed()
	holder.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{holder.release("jobs/a", 81)}})
	holder.wants(2, leasekeeperv1.HoldAnswer_RELEASED)
	waiter.wants(1, leasekeeperv1.HoldAnswer_HELD)
}
