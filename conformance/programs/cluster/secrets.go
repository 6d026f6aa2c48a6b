package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// User and Password are the user that a program of a secured cluster logs in as.
const (
	User     = "program"
	Password = "of-the-program"
)

// Secrets are the files of a secured cluster, in PEM form. Servers ask clients for a certificate of CA.
type Secrets struct {
	CA string
	// Cert and Key are a certificate whose common name is [User]. Its program may log in with [Password], too.
	Cert, Key string

	serverCert, serverKey string
	root                  *tls.Config // of a client whose certificate names the user root
}

// StartSecured is like [Start], for a cluster that speaks TLS with clients, asks for their certificates, and has users. The user
// [User] may read and write the keys that begin with a prefix, and nothing else.
func StartSecured(t testing.TB, kind Kind, n int, prefix string) (*Cluster, *Secrets) {
	t.Helper()
	s := newSecrets(t)
	c := &Cluster{t: t, kind: kind, program: Program(t, kind), secrets: s}
	c.begin(n)
	c.enableAccess(prefix)
	return c, s
}

// enableAccess makes the users and enables access. Each step may be repeated.
func (c *Cluster) enableAccess(prefix string) {
	c.t.Helper()
	end := []byte(prefix)
	end[len(end)-1]++
	err := c.Leader().call(func(ctx context.Context, conn *grpc.ClientConn) error {
		auth := pb.NewAuthClient(conn)
		steps := []func() error{
			func() error {
				_, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Options: &authpb.UserAddOptions{NoPassword: true}})
				return err
			},
			func() error {
				_, err := auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
				return err
			},
			func() error {
				_, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: User, Password: Password})
				return err
			},
			func() error {
				_, err := auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: User})
				return err
			},
			func() error {
				_, err := auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: User, Perm: &authpb.Permission{
					PermType: authpb.READWRITE, Key: []byte(prefix), RangeEnd: end,
				}})
				return err
			},
			func() error {
				_, err := auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: User, Role: User})
				return err
			},
			func() error {
				_, err := auth.AuthEnable(ctx, &pb.AuthEnableRequest{})
				return err
			},
		}
		if c.kind == Etcd { // ours has this role from the beginning
			steps = append([]func() error{func() error {
				_, err := auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "root"})
				return err
			}}, steps...)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.t.Fatalf("enabling access: %v", err)
	}
}

// newSecrets makes an authority and its certificates. All may read the files: programs run as other users.
func newSecrets(t testing.TB) *Secrets {
	t.Helper()
	dir, err := os.MkdirTemp("", "secrets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key, template := newKey(t), certificate("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := &Secrets{CA: filepath.Join(dir, "ca.pem")}
	write(t, s.CA, "CERTIFICATE", der)
	issue := func(commonName string) (cert, file string) {
		own := newKey(t)
		der, err := x509.CreateCertificate(rand.Reader, certificate(commonName), ca, &own.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := x509.MarshalECPrivateKey(own)
		if err != nil {
			t.Fatal(err)
		}
		cert, file = filepath.Join(dir, commonName+".pem"), filepath.Join(dir, commonName+".key")
		write(t, cert, "CERTIFICATE", der)
		write(t, file, "EC PRIVATE KEY", text)
		return cert, file
	}
	s.serverCert, s.serverKey = issue("server")
	s.Cert, s.Key = issue(User)
	rootCert, rootKey := issue("root")
	pair, err := tls.LoadX509KeyPair(rootCert, rootKey)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(ca)
	s.root = &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	return s
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// certificate is a certificate for servers on this machine and for clients.
func certificate(commonName string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}

// flags are those by which a server of a kind speaks TLS with clients.
func (s *Secrets) flags(kind Kind) []string {
	if kind == Leasekeeper {
		return []string{"--cert", s.serverCert, "--key", s.serverKey, "--client-ca", s.CA}
	}
	return []string{"--cert-file", s.serverCert, "--key-file", s.serverKey, "--trusted-ca-file", s.CA, "--client-cert-auth"}
}
