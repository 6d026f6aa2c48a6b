package guard

import (
	"context"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
)

// interrupted is a member on which something happens before a change is applied, and after keys were read.
type interrupted struct {
	*node.Node
	by func()
}

func (m interrupted) Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error) {
	m.by()
	return m.Node.Txn(ctx, req, serializable)
}

func (m interrupted) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error) {
	h, res, err := m.Node.Range(ctx, req, serializable)
	m.by()
	return h, res, err
}

// watchAndAdminister is the right of the user u in [withUser].
var watchAndAdminister = access.Right{Prefix: "jobs/", Rights: access.Watch | access.Administer}

// withUser starts a member with the users root and u, and enables access.
func withUser(t *testing.T) (member *node.Node, g *Guard, asRoot func(access.Command)) {
	t.Helper()
	member, err := node.Start(t.Context(), node.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		wantError(t, "stopping the member", member.Stop(ctx), nil)
	})
	<-member.Ready()
	asRoot = func(c access.Command) {
		t.Helper()
		ctx := node.As(t.Context(), access.Caller{User: access.Root, Revision: member.Access().Revision()})
		wantError(t, "changing the policy", last1(member.ChangeAccess(ctx, c)), nil)
	}
	for _, c := range []access.Command{
		access.AddUser{Name: access.Root}, access.GrantRole{User: access.Root, Role: access.Root}, access.AddUser{Name: "u"},
		access.AddRole{Name: "r"}, access.GrantRole{User: "u", Role: "r"}, access.GrantRight{Role: "r", Right: watchAndAdminister}, access.Enable{},
	} {
		asRoot(c)
	}
	g, err = New(Config{Member: member, AuthToken: "simple"})
	if err != nil {
		t.Fatal(err)
	}
	return member, g, asRoot
}

// A front reads and changes keys for itself by the rights that MayName has checked. If these are withdrawn meanwhile, nothing is
// changed, and nothing that was read is answered.
func TestWithdrawnRightsOverANameCount(t *testing.T) {
	member, g, asRoot := withUser(t)
	right := watchAndAdminister
	names := Names{interrupted{member, func() {}}, g}
	withdrawn := Names{interrupted{member, func() { asRoot(access.RevokeRight{Role: "r", Right: right}) }}, g}
	key := record.MarkKey("jobs/a")
	change := func(names Names, ctx context.Context) error {
		return last2(names.Txn(ctx, keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.PutRequest{Key: key}}}, false))
	}
	read := func(names Names, ctx context.Context) error {
		return last2(names.Range(ctx, keyspace.RangeRequest{Key: key}, false))
	}
	permitted := func(rights access.Rights) context.Context {
		t.Helper()
		ctx, err := g.MayName(as("u"), "jobs/a", rights)
		wantError(t, "MayName", err, nil)
		return ctx
	}

	wantError(t, "a change that is permitted", change(names, permitted(access.Administer)), nil)
	wantError(t, "a reading that is permitted", read(names, permitted(access.Watch)), nil)
	wantError(t, "a change by the server itself", change(names, admission.AsServer(t.Context())), nil)
	wantError(t, "a change that nothing permits", change(names, as("u")), access.ErrPermissionDenied)
	wantError(t, "a reading that nothing permits", read(names, as("u")), access.ErrPermissionDenied)

	wantError(t, "a change after the right was withdrawn", change(withdrawn, permitted(access.Administer)), access.ErrOldRevision)
	asRoot(access.GrantRight{Role: "r", Right: right})
	wantError(t, "a reading after the right was withdrawn", read(withdrawn, permitted(access.Watch)), access.ErrPermissionDenied)
}

// A mark that is replaced has its user in the audit log, by the right over the name that MayName has checked.
func TestReplacedMarkIsOfItsUser(t *testing.T) {
	member, g, asRoot := withUser(t)
	names := Names{interrupted{member, func() {}}, g}
	withdrawn := Names{interrupted{member, func() { asRoot(access.RevokeRight{Role: "r", Right: watchAndAdminister}) }}, g}
	replace := func(names Names, ctx context.Context) error {
		key := record.MarkKey("jobs/a")
		return last2(names.Txn(ctx, keyspace.TxnRequest{
			Compare: []keyspace.Compare{{Target: keyspace.CompareMod, Key: key}}, Success: []keyspace.TxnOp{keyspace.PutRequest{Key: key, Value: []byte("0 5")}},
		}, false))
	}
	permitted, err := g.MayName(as("u"), "jobs/a", access.Administer)
	wantError(t, "MayName", err, nil)
	wantError(t, "a change that nothing permits", replace(names, as("u")), access.ErrUserEmpty)
	wantError(t, "a change with an invalid token", replace(names, forged()), login.ErrInvalidToken)
	wantError(t, "a change that is permitted", replace(names, permitted), nil)
	page, _, err := member.Audit(t.Context(), audit.Query{After: 7, Limit: 9, Bytes: 1 << 20})
	wantError(t, "the audit log", err, nil)
	if len(page.Records) != 1 || page.Records[0].By.User != "u" || page.Records[0].Name != "name.set-mark" || page.Records[0].Object != "jobs/a, tick 5" {
		t.Errorf("the audit log has %+v", page.Records)
	}
	wantError(t, "a change after the right was withdrawn", replace(withdrawn, permitted), access.ErrOldRevision)
}

// With access enabled in its data, a member is not served where others could send requests as members.
func TestGuardIsNotMadeWhereOthersCanActAsMembers(t *testing.T) {
	member, _, asRoot := withUser(t)
	made := func(open bool) error {
		return last1(New(Config{Member: member, AuthToken: "simple", OpenPeers: func() bool { return open }}))
	}
	wantError(t, "members only", made(false), nil)
	wantError(t, "others too", made(true), ErrExposed)
	asRoot(access.Disable{})
	wantError(t, "others too, and no users", made(true), nil)
}
