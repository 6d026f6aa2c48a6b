package remote_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/server"
)

func TestURLsAreParsed(t *testing.T) {
	for raw, want := range map[string]remote.Config{
		"leasekeeper://h":                {Endpoints: []string{"h"}},
		"leasekeeper://h1,h2:1/":         {Endpoints: []string{"h1", "h2:1"}},
		"leasekeeper://h/some/ns/":       {Endpoints: []string{"h"}, Namespace: "some/ns"},
		"leasekeeper://[::1]:2379/a%20b": {Endpoints: []string{"[::1]:2379"}, Namespace: "a b"},
		"leasekeepers://h/x":             {Endpoints: []string{"h"}, Namespace: "x"},
		"leasekeeper://u:p%2Fw%40@h/x":   {Endpoints: []string{"h"}, Namespace: "x", Username: "u", Password: "p/w@"},
		"leasekeeper://u@h/x":            {Endpoints: []string{"h"}, Namespace: "x", Username: "u"},
	} {
		u, err := url.Parse(raw)
		ok(t, err)
		got, err := remote.ParseURL(u)
		ok(t, err)
		if (got.TLS != nil) != (u.Scheme == "leasekeepers") {
			t.Errorf("%s: TLS %v", raw, got.TLS)
		}
		if !slices.Equal(got.Endpoints, want.Endpoints) || got.Namespace != want.Namespace || got.Username != want.Username || got.Password != want.Password {
			t.Errorf("%s: %+v", raw, got)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	ok(t, os.WriteFile(empty, nil, 0o600))
	for raw, says := range map[string]string{
		"leasekeeper:///x":                                "endpoint",
		"leasekeeper://h,,i":                              "empty",
		"leasekeeper://h,i:65536":                         "ports are 1 to 65535",
		"leasekeeper://h:99999999999999999999":            "ports are 1 to 65535",
		"leasekeeper://h:0":                               "ports are 1 to 65535",
		"leasekeeper://h?retries=3":                       "retries",
		"leasekeeper://h?ca=":                             "one file",
		"leasekeeper://h?ca=a&ca=b":                       "one file",
		"leasekeeper://h?cert=a":                          "belong together",
		"leasekeeper://h?ca=/nowhere":                     "nowhere",
		"leasekeeper://h?ca=" + empty:                     "no certificate",
		"leasekeeper://h?cert=" + empty + "&key=" + empty: "client's certificate",
		"leasekeeper://:hunter2@h/x":                      "without a user",
		"leasekeeper://u:hunter2@h?a=%zz":                 "malformed",
		"leasekeeper://h/x%00y":                           "namespace",
		"leasekeeper://h/a//b":                            "namespace",
		"leasekeeper://h#x":                               "looks like",
		"leasekeeper:h":                                   "looks like",
	} {
		_, err := backend.Open(t.Context(), raw)
		if is(t, err, backend.ErrInvalid); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	for _, cfg := range []remote.Config{
		{}, {Endpoints: []string{"h"}, Namespace: "a/"}, {Endpoints: []string{"h"}, Namespace: "\xff"},
		{Endpoints: []string{"h"}, RequestTimeout: -1}, {Endpoints: []string{"nosuch:///\x7f"}},
	} {
		if _, err := remote.New(cfg); !errors.Is(err, backend.ErrInvalid) {
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
		"leasekeepers://" + addr + "/x?ca=" + cert + "&cert=" + cert + "&key=" + key: nil,
		"leasekeeper://" + addr + "/x?ca=" + cert + "&cert=" + cert + "&key=" + key:  nil,
		"leasekeeper://" + addr + "/x?ca=" + cert:                                    backend.ErrUnavailable,
		"leasekeepers://" + addr + "/x?cert=" + cert + "&key=" + key:                 backend.ErrUnavailable,
		"leasekeeper://" + addr + "/x":                                               backend.ErrUnavailable,
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

// The backend uses the caller's TLS configuration unchanged.
func TestTLSConfigOfTheCallerIsUsed(t *testing.T) {
	cert, key := certificate(t)
	addr, stop, err := endpointstest.Serve("127.0.0.1:0", t.TempDir(), server.Config{CertFile: cert, KeyFile: key})
	ok(t, err)
	t.Cleanup(func() { ok(t, stop()) })
	pool := x509.NewCertPool()
	pemmed, err := os.ReadFile(cert)
	ok(t, err)
	pool.AppendCertsFromPEM(pemmed)
	b := openWith(t, remote.Config{Endpoints: []string{addr}, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}})
	l, _ := hold(t, b, "x")
	ok(t, renew(t, b, l).Err)
}

// Another kind of server, or a proxy, refuses every request.
func TestRefusalsByOtherServersAreReported(t *testing.T) {
	for code, kind := range map[codes.Code]error{
		codes.Unimplemented: backend.ErrInvalid, codes.Unauthenticated: backend.ErrUnauthenticated, codes.PermissionDenied: backend.ErrDenied,
		codes.Internal: backend.ErrUnavailable, codes.Unknown: backend.ErrUnavailable, codes.ResourceExhausted: backend.ErrUnavailable,
	} {
		refusal := status.Error(code, "no")
		b := openWith(t, remote.Config{Endpoints: []string{"127.0.0.1:1"}, DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				return refusal
			}),
			grpc.WithChainStreamInterceptor(func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, refusal
			}),
		}})
		_, err := b.Get(limited(t), "x")
		is(t, err, kind)
		_, _, err = b.Claim(limited(t), newClaim("x", true))
		is(t, err, kind)
		if code == codes.Unimplemented && !strings.Contains(err.Error(), "etcd://") {
			t.Errorf("it does not say what to do: %v", err)
		}
		if kind != backend.ErrUnavailable {
			is(t, b.Watch(limited(t), "", func(backend.Event) {}), kind)
		}
	}
}
