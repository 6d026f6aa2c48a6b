package cluster

import (
	"context"
	"crypto/tls"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/conformance/programs/authority"
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

// enableAccess makes the users and enables access.
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

// newSecrets makes an authority and its certificates.
func newSecrets(t testing.TB) *Secrets {
	t.Helper()
	a := authority.New(t)
	s := &Secrets{CA: a.File, root: a.Client("root")}
	s.serverCert, s.serverKey = a.Files("server")
	s.Cert, s.Key = a.Files(User)
	return s
}

// flags are those by which a server of a kind speaks TLS with clients.
func (s *Secrets) flags(kind Kind) []string {
	if kind == Leasekeeper {
		return []string{"--cert", s.serverCert, "--key", s.serverKey, "--client-ca", s.CA}
	}
	return []string{"--cert-file", s.serverCert, "--key-file", s.serverKey, "--trusted-ca-file", s.CA, "--client-cert-auth"}
}
