package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
	"github.com/leasekeeper/leasekeeper/internal/credential"
)

// maxEndpoints bounds the endpoints of a URL that are asked.
const maxEndpoints = 20

// servers are the servers of a store's URL.
type servers struct{ store.Servers }

// reply is the answer of one endpoint.
type reply struct {
	endpoint string
	took     time.Duration
	status   *pb.StatusResponse // nil with err
	err      error
}

// examine checks the servers and, if they are members of a cluster, all its members.
func (s servers) examine(ctx context.Context, now time.Time) (checks []Check) {
	if len(s.Endpoints) > maxEndpoints {
		s.Endpoints = s.Endpoints[:maxEndpoints]
	}
	if s.TLS != nil {
		checks = append(checks, s.checkCertificates(ctx, now)...)
	}
	var replies []reply
	var first *reply
	var members []*leasekeeperv1.Member
	var failed error
	for _, endpoint := range s.Endpoints {
		conn, err := s.dial(endpoint)
		if err != nil {
			replies = append(replies, reply{endpoint: endpoint, err: err})
			continue
		}
		r := ask(ctx, conn, endpoint)
		replies = append(replies, r)
		if r.err == nil && first == nil {
			first = &replies[len(replies)-1]
			members, failed = askMembers(ctx, conn)
		}
		_ = conn.Close() // no request is under way
	}
	checks = append(checks, judgeReplies(replies))
	if first == nil {
		return append(checks, skipped("members", "no endpoint has answered"))
	}
	checks = append(checks, judgeAlarms(first.status.Errors))
	if failed != nil {
		return append(checks, bad(Warn, "members", "the server does not list them: "+status.Convert(failed).Message(), "give the URL a user that may read, and try again"))
	}
	if members == nil {
		return append(checks, judgeLeader(first.status.Leader), good("server", "speaks etcd %s; it does not report its members' states", first.status.Version))
	}
	return append(checks, judgeMembers(members)...)
}

// dial returns a connection to one endpoint. It connects with the first request.
func (s servers) dial(endpoint string) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if s.TLS != nil {
		transport = credentials.NewTLS(s.TLS.Clone())
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if s.Username != "" {
		options = append(options, credential.New(credential.Config{Name: s.Username, Password: s.Password}).Options()...)
	}
	return grpc.NewClient("passthrough:///"+endpoint, options...)
}

// ask asks one endpoint for its status, twice: the first answer includes the time to connect.
func ask(ctx context.Context, conn *grpc.ClientConn, endpoint string) reply {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	r := reply{endpoint: endpoint}
	for range 2 {
		began := time.Now()
		if r.status, r.err = pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}); r.err != nil {
			break
		}
		r.took = time.Since(began)
	}
	return r
}

// askMembers returns the members of a cluster, or the single server. It returns nil for a server that is not Leasekeeper.
func askMembers(ctx context.Context, conn *grpc.ClientConn) ([]*leasekeeperv1.Member, error) {
	answer, err := leasekeeperv1.NewMembersClient(conn).List(ctx, &leasekeeperv1.ListMembersRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	return answer.GetMembers(), err
}

// judgeReplies judges which endpoints answer.
func judgeReplies(replies []reply) Check {
	const name = "endpoints"
	var silent []string
	var least, most time.Duration
	var last error
	for _, r := range replies {
		if r.err != nil {
			silent, last = append(silent, r.endpoint), r.err
			continue
		}
		if least == 0 || r.took < least {
			least = r.took
		}
		most = max(most, r.took)
	}
	answers := len(replies) - len(silent)
	found := fmt.Sprintf("%d of %d answer", answers, len(replies))
	if answers > 0 {
		found += fmt.Sprintf(", in %s to %s", brief(least), brief(most))
	}
	if len(silent) == 0 {
		return good(name, "%s", found)
	}
	found += "; no answer: " + listed(silent)
	why := status.Convert(last)
	switch {
	case why.Code() == codes.Unauthenticated || why.Code() == codes.PermissionDenied || strings.Contains(why.Message(), "user name is empty"):
		return bad(Fail, name, found, "write a user and its password into the URL of the store, as USER:PASSWORD@ before the host (%s)", why.Message())
	case answers == 0:
		return bad(Fail, name, found, "start the server, or correct the URL of the store (%s)", why.Message())
	}
	return bad(Warn, name, found, "start these servers, or remove them from the URL (%s)", why.Message())
}

// checkCertificates checks the certificate that the first endpoint which speaks TLS presents, and this client's own.
func (s servers) checkCertificates(ctx context.Context, now time.Time) (checks []Check) {
	const name = "server certificate"
	if own := s.TLS.GetClientCertificate; own != nil {
		if pair, err := own(&tls.CertificateRequestInfo{}); err != nil {
			checks = append(checks, bad(Fail, "client certificate", "the files cannot be used", "%v", err))
		} else if leaf, err := x509.ParseCertificate(pair.Certificate[0]); err == nil {
			checks = append(checks, judgeValidity("client certificate", leaf, now, "get a new certificate for this client"))
		}
	}
	var last error
	for _, endpoint := range s.Endpoints {
		pair, err := presented(ctx, endpoint)
		if last = err; err != nil {
			continue
		}
		const fix = "give the server a new certificate"
		return append(checks, judgeValidity(name, pair.Leaf, now, fix), judgeNames("server names", pair.Leaf, []string{endpoint}),
			judgeChain("server chain", pair, s.TLS.RootCAs, now, serverChain, x509.ExtKeyUsageServerAuth))
	}
	return append(checks, bad(Fail, name, "no endpoint presents one", "check that the server speaks TLS (%v)", last))
}

// presented returns the certificate that a server presents. It does not verify it, and sends nothing.
func presented(ctx context.Context, endpoint string) (pair tls.Certificate, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return pair, err
	}
	defer conn.Close()
	config := anyServer()
	config.ServerName, config.NextProtos = hostOf(endpoint), []string{"h2"}
	session := tls.Client(conn, config)
	if err := session.HandshakeContext(ctx); err != nil {
		return pair, err
	}
	for _, cert := range session.ConnectionState().PeerCertificates {
		pair.Certificate = append(pair.Certificate, cert.Raw)
	}
	pair.Leaf = session.ConnectionState().PeerCertificates[0]
	return pair, nil
}
