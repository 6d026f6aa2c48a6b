package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/server"
)

func TestURLsAreParsed(t *testing.T) {
	for raw, want := range map[string]etcd.Config{
		"etcd://h":                    {Endpoints: []string{"h"}},
		"etcd://h1,h2:1/":             {Endpoints: []string{"h1", "h2:1"}},
		"etcd://h/some/prefix/":       {Endpoints: []string{"h"}, Prefix: "some/prefix"},
		"etcd://h//slash":             {Endpoints: []string{"h"}, Prefix: "/slash"},
		"etcd://u:p%2Fw@h1,h2:2/jobs": {Endpoints: []string{"h1", "h2:2"}, Prefix: "jobs", Username: "u", Password: "p/w"},
		"etcd://[::1]:2379/a%20b":     {Endpoints: []string{"[::1]:2379"}, Prefix: "a b"},
		"etcds://h/x":                 {Endpoints: []string{"h"}, Prefix: "x"},
	} {
		u, err := url.Parse(raw)
		ok(t, err)
		got, err := etcd.ParseURL(u)
		ok(t, err)
		if (got.TLS != nil) != (u.Scheme == "etcds") {
			t.Errorf("%s: TLS %v", raw, got.TLS)
		}
		if !slices.Equal(got.Endpoints, want.Endpoints) || got.Prefix != want.Prefix || got.Username != want.Username || got.Password != want.Password {
			t.Errorf("%s: %+v", raw, got)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	ok(t, os.WriteFile(empty, nil, 0o600))
	for raw, says := range map[string]string{
		"etcd:///x":                                "endpoint",
		"etcd://h,,i":                              "empty",
		"etcd://h?retries=3":                       "retries",
		"etcd://h?ca=":                             "one file",
		"etcd://h?ca=a&ca=b":                       "one file",
		"etcd://h?cert=a":                          "belong together",
		"etcd://h?ca=/nowhere":                     "nowhere",
		"etcd://h?ca=" + empty:                     "no certificate",
		"etcd://h?cert=" + empty + "&key=" + empty: "client's certificate",
		"etcd://:hunter2@h":                        "without a user",
		"etcd://u:hunter2@h/x%00y":                 "prefix",
		"etcd://u:hunter2@h#x":                     "looks like",
	} {
		_, err := backend.Open(t.Context(), raw)
		if is(t, err, backend.ErrInvalid); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	for _, cfg := range []etcd.Config{
		{}, {Endpoints: []string{"h"}, Prefix: "a/"}, {Endpoints: []string{"h"}, Prefix: "\xff"},
		{Endpoints: []string{"h"}, RequestTimeout: -1}, {Endpoints: []string{"nosuch:///\x7f"}},
	} {
		if _, err := etcd.New(cfg); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// certificate makes a self-signed certificate for 127.0.0.1, and returns its files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	ok(t, err)
	private8, err := x509.MarshalPKCS8PrivateKey(private)
	ok(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ok(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	ok(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private8}), 0o600))
	return cert, key
}

func TestURLParametersTurnTLSOn(t *testing.T) {
	cert, key := certificate(t)
	addr, stop, err := endpointstest.Serve("127.0.0.1:0", t.TempDir(), server.Config{CertFile: cert, KeyFile: key, ClientCAFile: cert})
	ok(t, err)
	t.Cleanup(func() { ok(t, stop()) })
	for raw, kind := range map[string]error{
		"etcds://" + addr + "/x?ca=" + cert + "&cert=" + cert + "&key=" + key: nil,
		"etcd://" + addr + "/x?ca=" + cert + "&cert=" + cert + "&key=" + key:  nil,
		"etcd://" + addr + "/x?ca=" + cert:                                    backend.ErrUnavailable,
		"etcds://" + addr + "/x?cert=" + cert + "&key=" + key:                 backend.ErrUnavailable,
		"etcd://" + addr + "/x":                                               backend.ErrUnavailable,
	} {
		b, err := backend.Open(t.Context(), raw)
		ok(t, err)
		if _, err = b.Get(limited(t), "x"); kind == nil {
			ok(t, err)
		} else {
			is(t, err, kind)
		}
		ok(t, b.Close(limited(t)))
	}
}

// guard stands for an etcd with users. It refuses a request without a valid token with etcd's own errors. A token is valid
// for a number of requests.
type guard struct {
	mu     sync.Mutex
	off    bool // etcd has no users
	given  int
	valid  string
	left   int
	each   int
	denied error // the error for a token that is not valid
}

func (g *guard) admit(ctx context.Context, method string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	md, _ := metadata.FromOutgoingContext(ctx)
	token := strings.Join(md.Get(rpctypes.TokenFieldNameGRPC), ",")
	if strings.HasSuffix(method, "Authenticate") || g.off {
		return nil
	}
	if token == "" {
		return rpctypes.ErrGRPCUserEmpty
	}
	if g.left--; token != g.valid || g.left < 0 {
		return g.denied
	}
	return nil
}

func (g *guard) authenticate(req *pb.AuthenticateRequest, resp *pb.AuthenticateResponse) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.off {
		return rpctypes.ErrGRPCAuthNotEnabled
	}
	if req.Name != "u" || req.Password != "p" {
		return rpctypes.ErrGRPCAuthFailed
	}
	g.given++
	g.left, g.valid = g.each, strings.Repeat("t", g.given)
	resp.Token = g.valid
	return nil
}

func (g *guard) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err := g.admit(ctx, method); err != nil {
				return err
			}
			if r, ok := req.(*pb.AuthenticateRequest); ok {
				return g.authenticate(r, reply.(*pb.AuthenticateResponse))
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if err := g.admit(ctx, method); err != nil {
				return nil, err
			}
			return open(ctx, desc, cc, method, opts...)
		}),
	}
}

// Tokens end, and users are turned off and on, and no call fails.
func TestTokensAreRenewed(t *testing.T) {
	s := startStore(t)
	for _, denied := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision} {
		g := &guard{each: 3, denied: denied}
		b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, Username: "u", Password: "p", DialOptions: g.options()})
		name := unique("users")
		for round := range 8 {
			g.mu.Lock()
			g.off = round == 3 || round == 4
			g.mu.Unlock()
			l, _ := hold(t, b, name)
			w := enqueue(t, b, name)
			turn := make(chan error, 1)
			go func() {
				_, err := b.Await(limited(t), w)
				turn <- err
			}()
			for range 3 {
				if r := renew(t, b, l); r.Err != nil {
					t.Error(r.Err)
				}
			}
			ok(t, b.Release(limited(t), l))
			ok(t, <-turn)
			ok(t, b.Release(limited(t), w))
		}
		if g.given < 10 {
			t.Errorf("only %d tokens were given", g.given)
		}
	}
}

func TestWrongPasswordIsNotAuthenticated(t *testing.T) {
	s := startStore(t)
	g := &guard{each: 1000, denied: rpctypes.ErrGRPCInvalidAuthToken}
	for _, password := range []string{"hunter2", ""} {
		b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, Username: "u", Password: password, DialOptions: g.options()})
		_, _, err := b.Claim(limited(t), newClaim("x", true))
		if is(t, err, backend.ErrUnauthenticated); strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
		is(t, b.Watch(limited(t), "", func(backend.Event) {}), backend.ErrUnauthenticated)
	}
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: g.options()})
	_, err := b.Get(limited(t), "x")
	is(t, err, backend.ErrUnauthenticated)
}
