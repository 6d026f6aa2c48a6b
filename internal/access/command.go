package access

import "errors"

// A Command is a change of the policy, as the log carries it. The set is closed. Each of etcd's requests that change users
// or roles has one; those for rights over names are this program's own.
//
// The requester must be allowed to use it: [Policy.CheckRoot].
type Command interface {
	Command() // the log's mark of commands
	accessCommand()
}

type (
	// Enable begins to check all requests. As in etcd it leaves the auth revision as it is, and succeeds if access is
	// enabled already.
	Enable struct{}
	// Disable stops checking requests. All simple tokens end ([Policy.Holds]).
	Disable struct{}
	// Login notes that a password was checked, so that every member knows the token that the user got. It fails with
	// [ErrOldRevision] if the policy is no longer the one by which the password was checked. It changes nothing.
	Login struct {
		User string
		// Digest is a hash of the token. The log never has the token itself.
		Digest [32]byte
		// Revision is the auth revision that [Policy.Password] returned.
		Revision uint64
	}

	// AddUser adds a user without roles. Hash is ignored if NoPassword is set.
	AddUser struct {
		Name       string
		Hash       []byte
		NoPassword bool
	}
	// DeleteUser deletes a user.
	DeleteUser struct{ Name string }
	// ChangePassword gives a user another password. A user that was added without a password stays without one.
	ChangePassword struct {
		Name string
		Hash []byte
	}
	// GrantRole gives a user a role. It changes nothing, not even the auth revision, if the user has the role.
	GrantRole struct{ User, Role string }
	// RevokeRole takes a role from a user.
	RevokeRole struct{ User, Role string }

	// AddRole adds a role without permissions.
	AddRole struct{ Name string }
	// DeleteRole deletes a role with its rights over names, and takes it from all users.
	DeleteRole struct{ Name string }
	// GrantPermission gives a role a permission, in place of one with the same Key and End. A nil Permission is an error.
	GrantPermission struct {
		Role       string
		Permission *Permission
	}
	// RevokePermission takes the permission with the same Key and End from a role.
	RevokePermission struct{ Role, Key, End string }

	// GrantRight adds rights over the names that begin with a prefix to those that a role has over the same prefix. It
	// changes nothing, not even the auth revision, if the role has them all.
	GrantRight struct {
		Role  string
		Right Right
	}
	// RevokeRight takes rights over the names that begin with a prefix from a role. It does not affect longer or shorter
	// prefixes. Rights of 0 are all rights over the prefix. Otherwise the role must have at least one of the rights.
	RevokeRight struct {
		Role  string
		Right Right
	}
	// SetQuota sets some of a user's limits, or with an empty User some of those that apply to all users without their own.
	// It does not raise the auth revision: it withdraws no right, and ends nothing that a user has.
	SetQuota struct {
		User   string
		Limits []Limit
	}
)

func (Enable) accessCommand()           {}
func (Disable) accessCommand()          {}
func (Login) accessCommand()            {}
func (AddUser) accessCommand()          {}
func (DeleteUser) accessCommand()       {}
func (ChangePassword) accessCommand()   {}
func (GrantRole) accessCommand()        {}
func (RevokeRole) accessCommand()       {}
func (AddRole) accessCommand()          {}
func (DeleteRole) accessCommand()       {}
func (GrantPermission) accessCommand()  {}
func (RevokePermission) accessCommand() {}
func (GrantRight) accessCommand()       {}
func (RevokeRight) accessCommand()      {}
func (SetQuota) accessCommand()         {}

func (Enable) Command()           {}
func (Disable) Command()          {}
func (Login) Command()            {}
func (AddUser) Command()          {}
func (DeleteUser) Command()       {}
func (ChangePassword) Command()   {}
func (GrantRole) Command()        {}
func (RevokeRole) Command()       {}
func (AddRole) Command()          {}
func (DeleteRole) Command()       {}
func (GrantPermission) Command()  {}
func (RevokePermission) Command() {}
func (GrantRight) Command()       {}
func (RevokeRight) Command()      {}
func (SetQuota) Command()         {}

// Changed is the answer to every command: the index of its log entry. A member that has applied the entry of a [Login] knows
// the token.
type Changed struct{ Index uint64 }

// Result marks the answer of a command.
func (Changed) Result() {}

// The errors of commands and verdicts. Each but the last four stands for one error of etcd.
var (
	ErrRootUserNotExist     = errors.New("the user root does not exist: add it before you enable access")
	ErrRootRoleNotExist     = errors.New("the user root does not have the role root: grant it before you enable access")
	ErrUserAlreadyExist     = errors.New("the user already exists")
	ErrUserEmpty            = errors.New("the request names no user: authenticate, or name one")
	ErrUserNotFound         = errors.New("there is no such user")
	ErrRoleAlreadyExist     = errors.New("the role already exists")
	ErrRoleNotFound         = errors.New("there is no such role")
	ErrRoleEmpty            = errors.New("the role has no name")
	ErrPermissionNotGiven   = errors.New("the request has no permission")
	ErrAuthFailed           = errors.New("no such user, or the password is wrong")
	ErrNoPasswordUser       = errors.New("the user has no password, and is identified by a certificate only")
	ErrPermissionDenied     = errors.New("the user may not do that")
	ErrRoleNotGranted       = errors.New("the user does not have the role")
	ErrPermissionNotGranted = errors.New("the role does not have the permission")
	ErrNotEnabled           = errors.New("access is not enabled")
	ErrOldRevision          = errors.New("the policy has changed since the user was identified: authenticate again")
	ErrInvalidManagement    = errors.New("the change would leave no user root, or the range of keys is invalid")

	// ErrRightNotGranted is the error of a [RevokeRight] of rights that the role does not have over the prefix.
	ErrRightNotGranted = errors.New("the role does not have such a right over that prefix of names")
	// ErrTooLarge is the error of a change after which all users and roles would take more than [MaxSize].
	ErrTooLarge = errors.New("there are too many users and roles: delete some first")
	// ErrInvalidQuota is the error of a [SetQuota] with a limit that makes no sense.
	ErrInvalidQuota = errors.New("the limit is not a number of leases, names, watchers or requests")
	// ErrQuota is the error of a user that has as much as its quota allows. It comes as a [QuotaError].
	ErrQuota = errors.New("the user has as much as its quota allows")
)

// Errors are all errors with which a command or a verdict may fail.
var Errors = []error{
	ErrRootUserNotExist, ErrRootRoleNotExist, ErrUserAlreadyExist, ErrUserEmpty, ErrUserNotFound, ErrRoleAlreadyExist,
	ErrRoleNotFound, ErrRoleEmpty, ErrPermissionNotGiven, ErrAuthFailed, ErrNoPasswordUser, ErrPermissionDenied,
	ErrRoleNotGranted, ErrPermissionNotGranted, ErrNotEnabled, ErrOldRevision, ErrInvalidManagement,
	ErrRightNotGranted, ErrTooLarge, ErrInvalidQuota, ErrQuota,
}
