package access

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
)

// TestTranscripts runs the specification in testdata. A file is a conversation with one policy. A key or an end of - is
// empty, and an end of ... is a single zero byte: all keys from there on.
//
//	enable | disable
//	login USER [revision=N]        without a revision: that of the policy
//	add-user NAME [hash=TEXT] [no-password] | delete-user NAME | change-password NAME hash=TEXT
//	grant-role USER ROLE | revoke-role USER ROLE
//	add-role NAME | delete-role NAME
//	grant ROLE read|write|readwrite|kind=N KEY [END] | revoke ROLE KEY [END]
//	grant-right ROLE PREFIX hold|watch|administer... | revoke-right ROLE PREFIX [hold|watch|administer...]
//	password USER                  the hash
//	holds USER issued=N            does a token of that revision hold?
//	check USER read|write KEY [END] [revision=N]
//	check-names USER PREFIX hold|watch|administer... [revision=N]
//	check-root USER | identified [USER]
//	show                           the whole policy
//	restart                        the policy is made again of its records
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play {
		w := new(conversation)
		return func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.run(d)
		}
	})
}

// conversation is a policy in a test.
type conversation struct {
	t      *testing.T
	policy *Policy
}

func (w *conversation) run(d *datadriven.TestData) string {
	if c := w.command(d); c != nil {
		return w.apply(c)
	}
	switch d.Cmd {
	case "password":
		hash, revision, err := w.policy.Password(word(d, 0))
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%q at revision %d", hash, revision)
	case "holds":
		return strconv.FormatBool(w.policy.Holds(word(d, 0), w.number(d, "issued")))
	case "check":
		kind := map[string]Kind{"read": Read, "write": Write}[word(d, 1)]
		return verdict(w.policy.Check(w.caller(d), []byte(word(d, 2)), []byte(word(d, 3)), kind))
	case "check-names":
		return verdict(w.policy.CheckNames(w.caller(d), word(d, 1), rightsOf(transcript.Words(d)[2:])))
	case "check-root":
		return verdict(w.policy.CheckRoot(w.caller(d)))
	case "identified":
		return verdict(w.policy.CheckIdentified(w.caller(d)))
	case "show":
		return show(w.policy)
	case "restart":
		before := w.policy
		w.policy = Restore(before.Rules(), before.Users(), before.Roles())
		if show(before) != show(w.policy) {
			w.t.Fatalf("before:\n%s\nafter:\n%s", show(before), show(w.policy))
		}
		return ""
	}
	w.t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

// command returns the command of a line; nil if it is a question.
func (w *conversation) command(d *datadriven.TestData) Command {
	switch d.Cmd {
	case "enable":
		return Enable{}
	case "disable":
		return Disable{}
	case "login":
		revision := w.policy.Revision()
		transcript.Scan(w.t, d, "revision", &revision)
		return Login{User: word(d, 0), Revision: revision}
	case "add-user":
		return AddUser{Name: word(d, 0), Hash: w.hash(d), NoPassword: d.HasArg("no-password")}
	case "delete-user":
		return DeleteUser{Name: word(d, 0)}
	case "change-password":
		return ChangePassword{Name: word(d, 0), Hash: w.hash(d)}
	case "grant-role":
		return GrantRole{User: word(d, 0), Role: word(d, 1)}
	case "revoke-role":
		return RevokeRole{User: word(d, 0), Role: word(d, 1)}
	case "add-role":
		return AddRole{Name: word(d, 0)}
	case "delete-role":
		return DeleteRole{Name: word(d, 0)}
	case "grant":
		if len(transcript.Words(d)) < 2 {
			return GrantPermission{Role: word(d, 0)}
		}
		kind := map[string]Kind{"read": Read, "write": Write, "readwrite": ReadWrite, "seven": 7}[word(d, 1)]
		return GrantPermission{Role: word(d, 0), Permission: &Permission{Kind: kind, Key: word(d, 2), End: word(d, 3)}}
	case "revoke":
		return RevokePermission{Role: word(d, 0), Key: word(d, 1), End: word(d, 2)}
	case "grant-right":
		return GrantRight{Role: word(d, 0), Right: Right{Prefix: word(d, 1), Rights: rightsOf(transcript.Words(d)[2:])}}
	case "revoke-right":
		return RevokeRight{Role: word(d, 0), Right: Right{Prefix: word(d, 1), Rights: rightsOf(transcript.Words(d)[2:])}}
	}
	return nil
}

// apply shows the error of a command, or the auth revision after it.
func (w *conversation) apply(c Command) string {
	before := show(w.policy)
	next, err := w.policy.Apply(c)
	if after := show(w.policy); before != after {
		w.t.Fatalf("%T changed a policy in place:\n%s\nafter:\n%s", c, before, after)
	}
	if err != nil {
		return err.Error()
	}
	revision := w.policy.Revision()
	w.policy = next
	if next.Revision() == revision {
		return ""
	}
	return fmt.Sprintf("revision %d", next.Revision())
}

func (w *conversation) caller(d *datadriven.TestData) Caller {
	c := Caller{User: word(d, 0)}
	if c.User != "" {
		c.Revision = w.policy.Revision()
	}
	transcript.Scan(w.t, d, "revision", &c.Revision)
	return c
}

func (w *conversation) hash(d *datadriven.TestData) []byte {
	var text string
	transcript.Scan(w.t, d, "hash", &text)
	return []byte(text)
}

func (w *conversation) number(d *datadriven.TestData, name string) (n uint64) {
	transcript.Scan(w.t, d, name, &n)
	return n
}

// word returns an argument that has no value; "" if there is none.
func word(d *datadriven.TestData, i int) string {
	words := transcript.Words(d)
	if i >= len(words) {
		return ""
	}
	switch words[i] {
	case "-":
		return ""
	case "...":
		return "\x00"
	}
	return words[i]
}

func rightsOf(words []string) (rights Rights) {
	for _, w := range words {
		rights |= map[string]Rights{"hold": Hold, "watch": Watch, "administer": Administer, "unknown": 1 << 20}[w]
	}
	return rights
}

func verdict(err error) string {
	if err != nil {
		return err.Error()
	}
	return "permitted"
}

// show returns everything that a policy shows of itself.
func show(p *Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %s\n", p.Revision(), map[bool]string{true: "enabled", false: "not enabled"}[p.Enabled()])
	for _, u := range p.Users() {
		fmt.Fprintf(&b, "user %s: roles %q, hash %q, since %d", u.Name, u.Roles, u.Hash, u.Since)
		if u.NoPassword {
			b.WriteString(", no password")
		}
		b.WriteString("\n")
	}
	for _, r := range p.Roles() {
		fmt.Fprintf(&b, "role %s\n", r.Name)
		for _, p := range r.Permissions {
			fmt.Fprintf(&b, "  %d on %q to %q\n", p.Kind, p.Key, p.End)
		}
		for _, right := range r.Rights {
			fmt.Fprintf(&b, "  %03b over names %q...\n", right.Rights, right.Prefix)
		}
	}
	return b.String()
}
