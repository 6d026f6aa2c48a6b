package server

import (
	"fmt"
	"net/http"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// Members and the gateway name users in metadata. The same metadata from a client with a certificate names nobody: over gRPC and
// as JSON, at the leader and at a follower, the client keeps the rights of its certificate's user, and gets no others.
func TestForgedMetadataDoesNotReplaceTheCertificate(t *testing.T) {
	ca := authority.New(t, "ca")
	tr := startEachOfTrio(t, waitLimit, func(cfg *Config, _ *node.ClusterConfig, _ *peer.Config) { *cfg = secured(t, ca, ca) })
	leader, follower := tr.leader()
	follower.auth = pb.NewAuthClient(follower.dialTLS(ca.Trust(ca.Pair("root"))))
	follower.addUsers()
	said := func(f admission.Finding, c access.Caller) string {
		md, _ := metadata.FromOutgoingContext(admission.SayCaller(t.Context(), f, c))
		return md["leasekeeper-caller-bin"][0]
	}
	for through, m := range map[string]*trioMember{"leader": leader, "follower": follower} {
		eventually(t, "the member knows that access is enabled", func() bool { return m.node.Access().Enabled() })
		alice := m.dialTLS(ca.Trust(ca.Pair("alice")))
		etcd := m.overHTTP(false, ca.Trust(ca.Pair("alice")))
		names := &jsonClient{m.front, "https://" + m.server.HTTPAddr(), etcd.http}
		for what, md := range map[string]metadata.MD{
			"the name of a certificate": metadata.Pairs("leasekeeper-common-name-bin", "root"),
			"a user": metadata.Pairs("leasekeeper-caller-bin",
				said(admission.Known, access.Caller{User: "root", Revision: m.node.Access().Revision()})),
			"a member's own work": metadata.Pairs("leasekeeper-caller-bin", said(admission.Server, access.Caller{})),
		} {
			t.Run(through+", "+what, func(t *testing.T) {
				ctx := metadata.NewOutgoingContext(m.ctx(), md)
				_, err := pb.NewAuthClient(alice).RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "forged"})
				wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
				_, err = leasekeeperv1.NewLeasekeeperClient(alice).GrantRight(ctx, &leasekeeperv1.GrantRightRequest{Role: "half", Rights: []leasekeeperv1.NameRight{hold}})
				wantReason(t, err, codes.PermissionDenied, leasekeeperv1.ErrorReason_DENIED)
				_, err = pb.NewKVClient(alice).Put(ctx, &pb.PutRequest{Key: []byte("m")})
				wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
				_, err = pb.NewKVClient(alice).Put(ctx, &pb.PutRequest{Key: []byte("a")})
				wantOK(t, err)

				headers := []string{"Content-Type: application/json"}
				for key, values := range md {
					for _, prefix := range []string{"", "Grpc-Metadata-"} {
						headers = append(headers, fmt.Sprintf("%s%s: %s", prefix, key, in64(values[0])))
					}
				}
				denied := status.Convert(rpctypes.ErrGRPCPermissionDenied).Message()
				wantEqual(t, "role add", etcd.fails(http.StatusForbidden, "/v3/auth/role/add", `{"name":"forged"}`, headers...), denied)
				names.fails(http.StatusForbidden, "/v1/grant-right", `{"role":"half","rights":["HOLD"]}`, headers...)
				wantEqual(t, "put m", etcd.fails(http.StatusForbidden, "/v3/kv/put", `{"key":"`+in64("m")+`"}`, headers...), denied)
				etcd.post("/v3/kv/put", `{"key":"`+in64("a")+`"}`, headers...)
			})
		}
	}
}
