package access

// Root is the name of the user that must exist before access is enabled, and of the role that permits everything.
const Root = "root"

// MaxSize bounds the bytes of all users and roles together; see [Policy.Size].
const MaxSize = 64 << 20

// A Caller is the user on whose behalf a request is made. The zero Caller has not authenticated.
type Caller struct {
	// User is the user's name.
	User string
	// Revision is the auth revision at which a server identified the user: that of a JSON Web Token, or the revision at the
	// request for a simple token or a certificate. 0 means that nobody was identified.
	Revision uint64
	// Origin is for the audit log. A transaction that has one replaces the mark of a name; see entry.MarkAct.
	Origin Origin
}

// An Origin is from where a request came. It is zero for what no client requested.
type Origin struct {
	// Address is the client's address without its port, as the member saw it that received the request.
	Address string
	// Certificate is the common name of the certificate that the client has proven to own; empty without one.
	Certificate string
}

// A Kind is what a permission allows. The numbers are those of etcd's API and file. A number that is not in the list is
// kept, and allows nothing.
type Kind int32

// The kinds of permissions.
const (
	Read      Kind = 0
	Write     Kind = 1
	ReadWrite Kind = 2
)

// A Permission allows something on a range of keys.
type Permission struct {
	Kind Kind
	// Key is the first key. It is not empty.
	Key string
	// End is the key after the last one. Empty means Key only, and a single zero byte means all keys from Key on.
	End string
}

// Rights are rights over names, as a set of bits. The numbers are on disks: no bit gets a new meaning.
type Rights uint32

// The rights over names.
const (
	// Hold is the right to claim a name, to see its holder, and to renew, finish and release what the same user has claimed.
	Hold Rights = 1 << 0
	// Watch is the right to list and watch names and their holders, and to see past holders and marks.
	Watch Rights = 1 << 1
	// Administer is the right to revoke, pin, unpin and transfer a name, and to put waiters in order.
	Administer Rights = 1 << 2

	// AllRights are the rights that this program knows.
	AllRights = Hold | Watch | Administer
)

// A Right grants rights over all names that begin with a prefix.
type Right struct {
	// Prefix is empty for all names. It ends wherever its bytes end: "jobs" is also a prefix of "jobs2".
	Prefix string
	Rights Rights
}

// A User is a user's record. It is immutable once it is part of a [Policy].
type User struct {
	Name string
	// Hash is what bcrypt made of the password. No password matches an empty hash.
	Hash []byte
	// NoPassword says that the user has no password and can be identified by a certificate only.
	NoPassword bool
	// Roles are the names of the user's roles, sorted. The role root need not exist.
	Roles []string
	// Since is the auth revision at which the user was added or the password was changed last. See [Policy.Holds].
	Since uint64
	// Quota is what the user may have at most. Root's does not matter.
	Quota Quota
}

// A Role is a role's record. It is immutable once it is part of a [Policy].
type Role struct {
	Name string
	// Permissions are sorted by Key, and those with the same Key by when they were granted. No two have the same Key and End.
	Permissions []Permission
	// Rights are sorted by Prefix. No two have the same one.
	Rights []Right
}
