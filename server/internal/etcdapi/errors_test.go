package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

func TestErrorsAreThoseOfEtcd(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{keyspace.ErrEmptyKey, codes.InvalidArgument, "etcdserver: key is not provided"},
		{keyspace.ErrKeyNotFound, codes.InvalidArgument, "etcdserver: key not found"},
		{keyspace.ErrValueProvided, codes.InvalidArgument, "etcdserver: value is provided"},
		{keyspace.ErrLeaseProvided, codes.InvalidArgument, "etcdserver: lease is provided"},
		{keyspace.ErrInvalidSort, codes.InvalidArgument, "etcdserver: invalid sort option"},
		{keyspace.ErrCompacted, codes.OutOfRange, "etcdserver: mvcc: required revision has been compacted"},
		{keyspace.ErrFutureRevision, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision"},
		{keyspace.ErrLeaseNotFound, codes.NotFound, "etcdserver: requested lease not found"},
		{&keyspace.CorruptError{Key: []byte("secret")}, codes.DataLoss, "etcdserver: corrupt cluster"},
		{lessor.ErrNotFound, codes.NotFound, "etcdserver: requested lease not found"},
		{lessor.ErrExists, codes.FailedPrecondition, "etcdserver: lease already exists"},
		{lessor.ErrTTLTooLarge, codes.OutOfRange, "etcdserver: too large lease TTL"},
		{lessor.ErrNotPrimary, codes.Unavailable, "etcdserver: no leader"},
		{replica.ErrNoLeader, codes.Unavailable, "etcdserver: no leader"},
		{node.ErrStopped, codes.Unavailable, "etcdserver: server stopped"},
		{replica.ErrTooLarge, codes.InvalidArgument, "etcdserver: request is too large"},
		{roster.ErrNotFound, codes.NotFound, "etcdserver: member not found"},
		{roster.ErrRemoved, codes.NotFound, "etcdserver: member not found"},
		{roster.ErrIDExists, codes.FailedPrecondition, "etcdserver: member ID already exist"},
		{roster.ErrPeerURLExists, codes.FailedPrecondition, "etcdserver: Peer URLs already exists"},
		{roster.ErrInsecure, codes.FailedPrecondition, "etcdserver: another machine reaches a member without TLS, so any program there could act for any user"},
		{roster.CheckSecure(roster.Member{ID: 7, PeerURLs: []string{"http://h:1"}}), codes.FailedPrecondition, "etcdserver: the other members reach the member 0000000000000007 at http://h:1 without TLS, so any program in their network could act for any user: give all members --peer-cert, --peer-key and --peer-ca, and the member a URL with https://"},
		{roster.ErrNotLearner, codes.FailedPrecondition, "etcdserver: can only promote a learner member"},
		{roster.ErrLearnerNotInStep, codes.FailedPrecondition, "etcdserver: can only promote a learner member which is in sync with leader"},
		{roster.ErrTooManyLearners, codes.FailedPrecondition, "etcdserver: too many learner members in cluster"},
		{roster.ErrNotEnoughStarted, codes.FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members"},
		{roster.ErrLastVoter, codes.FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members"},
		{roster.ErrUnhealthy, codes.Unavailable, "etcdserver: unhealthy cluster"},
		{replica.ErrChanging, codes.Unavailable, "etcdserver: another change of the members is under way: try again when it is done"},
		{replica.ErrTooManyRequests, codes.ResourceExhausted, "etcdserver: too many requests"},
		{replica.ErrUnknownOutcome, codes.Unavailable, "etcdserver: request timed out"},
		{context.DeadlineExceeded, codes.Unavailable, "etcdserver: request timed out"},
		{context.Canceled, codes.Canceled, "etcdserver: request canceled"},
		// A cancelled request may still take effect.
		{errors.Join(replica.ErrUnknownOutcome, context.Canceled), codes.Unavailable, "etcdserver: request timed out"},
		{errors.Join(context.Canceled, replica.ErrUnknownOutcome), codes.Unavailable, "etcdserver: request timed out"},
		// A status made in this package passes unchanged.
		{rpctypes.ErrGRPCAuthNotEnabled, codes.FailedPrecondition, "etcdserver: authentication is not enabled"},
		{lifetime.ErrStopping, codes.Unavailable, "etcdserver: server stopped"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("around it: %w", c.err)} {
			if _, ours := status.FromError(c.err); ours && err != c.err {
				continue
			}
			_, answer := translate(err)
			wantStatus(t, answer, status.Error(c.code, c.text))
		}
	}
}

// The server can notice a client's deadline before the client does.
func TestClientsOwnDeadlineIsAnsweredAsItsLibraryDoes(t *testing.T) {
	s := &API{} // without metrics: nothing is counted as refused
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, err := range []error{
		context.DeadlineExceeded,
		replica.ErrUnknownOutcome,
		fmt.Errorf("around it: %w", errors.Join(replica.ErrUnknownOutcome, context.DeadlineExceeded)),
	} {
		answer := s.Answer(expired, err)
		wantStatus(t, answer, status.Error(codes.DeadlineExceeded, "etcdserver: context deadline exceeded"))
	}
	wantStatus(t, s.Answer(expired, rpctypes.ErrGRPCMemberBadURLs), rpctypes.ErrGRPCMemberBadURLs)
}

func TestUnknownErrorsHideTheirText(t *testing.T) {
	reason, answer := translate(errors.New("open /var/lib/secret: no such file"))
	wantEqual(t, "reason", reason, reasonInternal)
	wantCode(t, answer, codes.Internal)
	if strings.Contains(answer.Error(), "secret") {
		t.Errorf("the client receives %v", answer)
	}
}

// A client that hangs up was not refused. Every other reason has a counter.
func TestRefusalsAreCountedByReason(t *testing.T) {
	counted := Reasons()
	for _, r := range refusals {
		reason, _ := translate(r.err)
		wantEqual(t, r.err.Error(), reason, r.reason)
		if reason != "" {
			if !slices.Contains(counted, reason) {
				t.Errorf("%s is not counted", reason)
			}
			continue
		}
		wantCode(t, r.status, codes.Canceled)
	}
	if !slices.Contains(counted, reasonCorrupt) || !slices.Contains(counted, reasonInternal) {
		t.Errorf("errors that should not occur are not counted: %v", counted)
	}
}

func TestTransientErrorsAreRetriable(t *testing.T) {
	for _, err := range []error{lessor.ErrNotPrimary, lessor.ErrEnding, lessor.ErrClearing, replica.ErrNoLeader} {
		_, answer := translate(err)
		wantCode(t, answer, codes.Unavailable)
	}
}

// The test reads the sources, so that it covers sentinels that are added later.
func TestEverySentinelHasARow(t *testing.T) {
	rows := make(map[string]bool)
	for _, table := range []string{"errors.go", "../namesapi/errors.go"} {
		ast.Inspect(parse(t, table), func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok {
					rows[pkg.Name+"."+sel.Sel.Name] = true
				}
			}
			return true
		})
	}
	seen := 0
	for _, folder := range []string{
		"../../../lessor", "../../../internal/keyspace", "../../../internal/replica", "../../../internal/replica/roster", "../../../internal/node",
	} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		wantOK(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, name := range sentinels(parse(t, file)) {
				seen++
				if qualified := filepath.Base(folder) + "." + name; !rows[qualified] && !slices.Contains(internalErrors, qualified) {
					t.Errorf("%s has no row in the table of errors", qualified)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("found only %d sentinels: this test looks in the wrong places", seen)
	}
}

// internalErrors are errors that no client can receive, of work on a data directory that no member uses; and errors that
// have their rows under another name, in package replica.
var internalErrors = []string{"node.ErrLossNotAccepted", "roster.ErrChanging", "roster.ErrFounding"}

// sentinels returns the exported error variables of a file.
func sentinels(file *ast.File) []string {
	var names []string
	for _, decl := range file.Decls {
		vars, ok := decl.(*ast.GenDecl)
		if !ok || vars.Tok != token.VAR {
			continue
		}
		for _, spec := range vars.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if strings.HasPrefix(name.Name, "Err") {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	wantOK(t, err)
	return parsed
}
