package audit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/permit"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// An Act is what was done, to what, and for which reason.
type Act struct {
	// Name is what was done, such as "name.revoke". Programs may compare it: no name gets a new meaning.
	Name string
	// Object is to what it was done, for people.
	Object string
	// Reason is the one that the caller gave; empty if it gave none.
	Reason string
}

// DisabledByRestore is the act of an operator who disables access with the disks at hand. Nobody knows which user it was.
var DisabledByRestore = Act{Name: "access.disable", Reason: "--disable-access, on data of a former cluster"}

// MayAct reports whether a command of a caller may be an act. For such a command the log carries from where the request came.
func MayAct(by access.Caller, c entry.Command) bool {
	switch c.(type) {
	case keyspace.TxnRequest:
		_, _, ok := entry.MarkAct(c, by)
		return ok
	case access.Login:
		return false
	case access.Command, entry.Revoke, entry.Compact, ownership.Revoke, ownership.Transfer, ownership.Prefer, ownership.Pin, ownership.Unpin:
		return true
	}
	return false
}

// Actor returns a caller as the log is to have it with a command. From where it came is only in what may be an act, and only
// if all members record that act: records is the version whose acts they record, and 0 if they keep no audit log. A command
// that needs the audit log begins it. Nobody checks users while access is not enabled.
//
// Members of versions before [gate.MarkActs] check a mark that is replaced by the rights over its key. For them the caller is
// root: the server has checked the right over the name, at the same revision.
func Actor(by access.Caller, c entry.Command, records gate.Version, enabled bool) access.Caller {
	if _, _, ok := entry.MarkAct(c, by); ok && records < gate.MarkActs {
		by = access.Caller{User: access.Root, Revision: by.Revision}
	}
	if !MayAct(by, c) || entry.Gate(c) < gate.Access && records == 0 {
		by.Origin = access.Origin{}
	}
	if !enabled {
		by.User, by.Revision = "", 0
	}
	return by
}

// Of returns the act that a command is, before the command is applied. ok is false if it is none: because it is not forced,
// or the member decided it itself. by is as the entry has it.
func Of(c entry.Command, by access.Caller, p *access.Policy, leases permit.Leases) (act Act, ok bool) {
	switch c := c.(type) {
	case access.Login:
		return Act{}, false
	case access.Command:
		return ofAccess(c), true
	}
	if by == (access.Caller{}) {
		return Act{}, false
	}
	switch c := c.(type) {
	case entry.Compact:
		return Act{Name: "compact", Object: "revision " + strconv.FormatInt(c.Revision, 10)}, true
	case entry.Revoke:
		return ofRevoke(c, by, p, leases)
	case ownership.Revoke:
		return Act{"name.revoke", c.Name, c.Note}, true
	case ownership.Transfer:
		if _, creator, there := leases.Claim(c.Lease); p.Enabled() && there && creator == by.User {
			return Act{}, false
		}
		return Act{Name: "name.transfer", Object: fmt.Sprintf("%s, lease %x", c.Name, uint64(c.Lease))}, true
	case ownership.Prefer:
		return Act{Name: "name.prefer", Object: fmt.Sprintf("%s, lease %x", c.Name, uint64(c.Lease))}, true
	case ownership.Pin:
		return Act{"name.pin", c.Name, c.Reason}, true
	case ownership.Unpin:
		return Act{Name: "name.unpin", Object: c.Name}, true
	case keyspace.TxnRequest:
		return ofMark(c, by)
	}
	return Act{}, false
}

// ofMark is Of for a transaction: whether it replaces the mark of a name on behalf of a client.
func ofMark(c keyspace.TxnRequest, by access.Caller) (Act, bool) {
	name, value, ok := entry.MarkAct(c, by)
	if !ok {
		return Act{}, false
	}
	if len(value) == 0 {
		return Act{Name: "name.unset-mark", Object: name}, true
	}
	token, tick, _ := strings.Cut(string(value), " ")
	object := name + ", tick " + tick
	if token != "0" {
		object += ", token " + token
	}
	return Act{Name: "name.set-mark", Object: object}, true
}

// CarriedOut reports whether a command did what it was for, by its result and its error. A transaction without an error did
// not if its conditions did not hold.
func CarriedOut(result any, err error) bool {
	txn, ok := result.(keyspace.TxnResult)
	return err == nil && (!ok || txn.Succeeded)
}

// ofRevoke is Of for the end of a lease by a user with the role root. A lease that no claim made has no owner, so the log
// records each of these ends by root. Other users can end only what they may write.
func ofRevoke(c entry.Revoke, by access.Caller, p *access.Policy, leases permit.Leases) (Act, bool) {
	if !p.Enabled() || p.CheckRoot(by) != nil {
		return Act{}, false
	}
	object := fmt.Sprintf("lease %x", uint64(c.Lease))
	if name, creator, there := leases.Claim(c.Lease); there {
		if creator == by.User {
			return Act{}, false
		}
		object += fmt.Sprintf(" of %s, user %s", name, creator)
	}
	return Act{Name: "lease.revoke", Object: object}, true
}

// ofAccess is Of for changes of users and roles.
func ofAccess(c access.Command) Act {
	switch c := c.(type) {
	case access.Enable:
		return Act{Name: "access.enable"}
	case access.Disable:
		return Act{Name: "access.disable"}
	case access.AddUser:
		return Act{Name: "user.add", Object: c.Name}
	case access.DeleteUser:
		return Act{Name: "user.delete", Object: c.Name}
	case access.ChangePassword:
		return Act{Name: "user.change-password", Object: c.Name}
	case access.GrantRole:
		return Act{Name: "user.grant-role", Object: c.User + ", role " + c.Role}
	case access.RevokeRole:
		return Act{Name: "user.revoke-role", Object: c.User + ", role " + c.Role}
	case access.AddRole:
		return Act{Name: "role.add", Object: c.Name}
	case access.DeleteRole:
		return Act{Name: "role.delete", Object: c.Name}
	case access.GrantPermission:
		if c.Permission == nil {
			return Act{Name: "role.grant-permission", Object: c.Role}
		}
		return Act{Name: "role.grant-permission", Object: c.Role + ", " + kindText(c.Permission.Kind) + " " + rangeText(c.Permission.Key, c.Permission.End)}
	case access.RevokePermission:
		return Act{Name: "role.revoke-permission", Object: c.Role + ", " + rangeText(c.Key, c.End)}
	case access.GrantRight:
		return Act{Name: "role.grant-right", Object: c.Role + ", " + rightsText(c.Right.Rights) + " " + strconv.Quote(c.Right.Prefix)}
	case access.RevokeRight:
		return Act{Name: "role.revoke-right", Object: c.Role + ", " + rightsText(c.Right.Rights) + " " + strconv.Quote(c.Right.Prefix)}
	case access.SetQuota:
		return Act{Name: "user.set-quota", Object: quotaText(c)}
	}
	return Act{Name: fmt.Sprintf("access.%T", c)} // a command that this function was not taught
}

// quotaText shows whose limits are set, and to what.
func quotaText(c access.SetQuota) string {
	text := c.User
	if text == "" {
		text = "all users"
	}
	for _, l := range c.Limits {
		switch l.Most {
		case access.Unlimited:
			text += fmt.Sprintf(", %v none", l.Resource)
		case access.Inherit:
			text += fmt.Sprintf(", %v default", l.Resource)
		default:
			text += fmt.Sprintf(", %v %d", l.Resource, l.Most)
		}
	}
	return text
}

func kindText(k access.Kind) string {
	switch k {
	case access.Read:
		return "read"
	case access.Write:
		return "write"
	case access.ReadWrite:
		return "readwrite"
	}
	return fmt.Sprintf("kind %d", k)
}

// rangeText shows a range of keys, which are any bytes.
func rangeText(key, end string) string {
	switch end {
	case "":
		return strconv.Quote(key)
	case "\x00":
		return "from " + strconv.Quote(key)
	}
	return strconv.Quote(key) + " to " + strconv.Quote(end)
}

func rightsText(r access.Rights) string {
	var all []string
	for _, right := range []struct {
		bit  access.Rights
		name string
	}{{access.Hold, "hold"}, {access.Watch, "watch"}, {access.Administer, "administer"}} {
		if r&right.bit != 0 {
			all = append(all, right.name)
		}
	}
	if rest := r &^ access.AllRights; rest != 0 || r == 0 {
		all = append(all, fmt.Sprintf("rights %d", rest))
	}
	return strings.Join(all, "+")
}

// OfMembers returns the act that a change of the members is. ok is false if a leader decided it itself.
func OfMembers(c roster.Change) (act Act, ok bool) {
	object := fmt.Sprintf("%016x", c.Member.ID)
	if len(c.Member.PeerURLs) > 0 {
		object += ", " + strings.Join(c.Member.PeerURLs, " ")
	}
	switch c.Kind {
	case roster.Add:
		if c.Member.Learner {
			object += ", learner"
		}
		return Act{Name: "member.add", Object: object}, true
	case roster.Remove:
		return Act{Name: "member.remove", Object: object}, true
	case roster.Promote:
		return Act{Name: "member.promote", Object: object}, true
	case roster.Update:
		return Act{Name: "member.update", Object: object}, true
	}
	return Act{}, false
}
