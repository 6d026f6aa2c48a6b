package simulation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
)

// In worlds with users, access is enabled. Every request is of the user all, which may do everything that clients do, but for
// some puts: they are of the user some, whose only role an administrator takes away and gives back again and again. The members
// identify a user by the policy that they have at that moment, as servers do.

const withdrawn = "a user without the right writes nothing"

// maxWithdrawn is for how long, at the most, the user some has no role.
const maxWithdrawn = 400 * time.Millisecond

// administrator changes users and roles, one change at a time. Each is requested until it is done.
type administrator struct {
	client *client
	todo   []access.Command // what is to be done before access is enabled, and enabling it
	done   int              // of todo
	open   access.Command   // requested and without an answer; nil: none
	grants bool             // the user some gets its role next
	// forbidden is the real time since which the user some certainly may write nothing; 0: it may.
	forbidden int64
	until     int64 // the real time until which the present state lasts
	// acts are the changes that were acknowledged, in order. The audit log has a record of each.
	acts []audit.Act
	// doubtful is set when it is unknown whether the role was given: it may be given at any later time.
	doubtful bool
}

// drawUsers returns the probability that a put is of the user whose role changes. Most worlds have no users.
func drawUsers(seed uint64) float64 {
	return []float64{0, 0, 0, 0.3}[rand.New(rand.NewPCG(seed, 10)).IntN(4)]
}

func newAdministrator(w *world) *administrator {
	everything := &access.Permission{Kind: access.ReadWrite, Key: "\x00", End: "\x00"}
	return &administrator{
		client: &client{w: w, name: "root", clocks: newClocks(w), known: make(map[string]version)},
		todo: []access.Command{
			access.AddUser{Name: access.Root}, access.GrantRole{User: access.Root, Role: access.Root},
			access.AddUser{Name: "all"}, access.AddUser{Name: "some"}, access.AddRole{Name: "clients"}, access.AddRole{Name: "writers"},
			access.GrantPermission{Role: "clients", Permission: everything},
			access.GrantRight{Role: "clients", Right: access.Right{Rights: access.AllRights}},
			access.GrantPermission{Role: "writers", Permission: everything},
			access.GrantRole{User: "all", Role: "clients"}, access.GrantRole{User: "some", Role: "writers"},
			access.Enable{},
		},
	}
}

// administer requests the next change, and schedules the one after it. It ends with the faults.
func (w *world) administer() {
	a := w.administrator
	if w.calm || w.over {
		return
	}
	w.after(w.upTo(w.dice.users, w.rhythm), w.administer)
	if a.open != nil || w.now < a.until {
		return
	}
	switch {
	case a.done < len(a.todo):
		a.open = a.todo[a.done]
	case a.grants:
		a.open, a.forbidden = access.GrantRole{User: "some", Role: "writers"}, 0
	default:
		a.open = access.RevokeRole{User: "some", Role: "writers"}
	}
	target := a.client.target
	if chance(w.dice.users, 0.1) {
		target = w.dice.users.IntN(len(w.members))
	}
	a.client.ask(w.members[target], &call{kind: administering, user: access.Root, event: replica.Request{Command: a.open}})
}

// heard handles the answer to a change. err is replica.ErrUnknownOutcome if there is none.
func (a *administrator) heard(w *world, err error) {
	c := a.open
	a.open = nil
	if err == nil {
		act, _ := audit.Of(c, access.Caller{}, nil, nil)
		a.acts = append(a.acts, act)
	}
	switch {
	case errors.Is(err, replica.ErrUnknownOutcome):
		grant, _ := c.(access.GrantRole)
		a.doubtful = a.doubtful || grant.User == "some"
		return
	case err != nil && !errors.Is(err, access.ErrUserAlreadyExist) && !errors.Is(err, access.ErrRoleAlreadyExist) && !errors.Is(err, access.ErrRoleNotGranted):
		return
	case a.done < len(a.todo):
		a.done++
	case a.grants:
		a.grants = false
	default:
		a.grants, a.until = true, w.now+int64(w.upTo(w.dice.users, maxWithdrawn))
		if _, revoked := c.(access.RevokeRole); revoked && !a.doubtful {
			a.forbidden = w.now
		}
		w.mark("a right was withdrawn")
	}
}

// auditLog returns the audit log of a member. It has fewer records than its bound.
func (m *member) auditLog() []audit.Record {
	page, err := audit.Read(m.db, audit.Query{Limit: audit.MaxRecords, Bytes: audit.MaxBytes})
	m.must(err)
	return page.Records
}

// checkAudit checks that all members have the same audit log, with a record of each acknowledged change in order (P45).
func (w *world) checkAudit() {
	if w.administrator == nil {
		return
	}
	first := w.listed()[0]
	records := first.auditLog()
	for _, m := range w.listed() {
		if got := m.auditLog(); !slices.Equal(got, records) {
			w.fail("the same state at the same index (I5)", "%s has the audit log %+v and %s has %+v", first.name, records, m.name, got)
		}
	}
	rest := records
	for i, act := range w.administrator.acts {
		at := slices.IndexFunc(rest, func(r audit.Record) bool { return r.Act == act })
		if at < 0 {
			w.fail("an act that was acknowledged is in the audit log (P45)", "acknowledged change %d, %+v, is not in order in %+v", i, act, records)
			return
		}
		rest = rest[at+1:]
	}
	if len(w.administrator.acts) > 0 {
		w.mark("the audit log has acknowledged changes")
	}
}

// ofUser returns a call's event with its user, as the member identifies it.
func (m *member) ofUser(k *call) replica.Event {
	by := access.Caller{User: k.user, Revision: m.replica.Access().Load().Revision()}
	if by.User == "" {
		by.User = "all"
	}
	switch e := k.event.(type) {
	case replica.Request:
		e.Caller = by
		return e
	case replica.Renewal:
		e.User = by.User
		return e
	}
	return k.event
}

// checkRight checks that an acknowledged put of the user some came while it had its role.
func (f *facts) checkRight(k *call) {
	a := f.w.administrator
	if a == nil || k.user != "some" {
		return
	}
	f.w.mark("a user with a right that comes and goes wrote")
	if a.forbidden != 0 && k.invoked > a.forbidden {
		f.w.fail(withdrawn, "%s acknowledges a put of %q that was requested at %v, and the right was withdrawn at %v",
			k.member.name, k.value, time.Duration(k.invoked), time.Duration(a.forbidden))
	}
}

// checkDenied notes the refusal of a put.
func (f *facts) checkDenied(k *call, err error) {
	switch {
	case errors.Is(err, access.ErrPermissionDenied):
		f.w.mark("a user without a right was refused")
		if k.user == "" && len(k.leases) == 0 { // the lease may be a claim of before access was enabled, which is nobody's
			f.w.fail("a user with all rights is not refused", "%s refuses a put of %q: %v", k.member.name, k.value, err)
		}
	case errors.Is(err, access.ErrOldRevision):
		f.w.mark("a request was refused because the policy had changed")
	case errors.Is(err, access.ErrUserEmpty):
		f.w.mark("a request from before access was enabled was refused")
	}
}
