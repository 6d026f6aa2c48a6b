package conformance

import (
	"strings"
	"testing"
)

// TestEtcdctlManagesUsers manages users and roles by etcdctl, and uses them.
func TestEtcdctlManagesUsers(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		for _, step := range [][2]string{
			{"user add root:r", "User root created\n"},
			{"user grant-role root root", "Role root is granted to user root\n"},
			{"role add half", "Role half created\n"},
			{"role grant-permission half readwrite a c", "Role half updated\n"},
			{"user add alice:a", "User alice created\n"},
			{"user add cert --no-password", "User cert created\n"},
			{"user grant-role alice half", "Role half is granted to user alice\n"},
			{"auth enable", "Authentication Enabled\n"},
			{"--user root:r auth status", "Authentication Status: true\nAuthRevision: 8\n"},
			{"--user alice:a put a 1", "OK\n"},
			{"--user alice:a get a", "a\n1\n"},
			{"--user root:r user list", "alice\ncert\nroot\n"},
			{"--user root:r role list", "half\n"},
			{"--user alice:a user get alice", "User: alice\nRoles: half\n"},
			{"--user alice:a role get half", "Role half\nKV Read:\n\t[a, c)\nKV Write:\n\t[a, c)\n"},
			{"--user root:r role revoke-permission half a c", "Permission of range [a, c) is revoked from role half\n"},
			{"--user root:r user revoke-role alice half", "Role half is revoked from user alice\n"},
			{"--user root:r role delete half", "Role half deleted\n"},
			{"--user root:r user delete alice", "User alice deleted\n"},
			{"--user root:r auth disable", "Authentication Disabled\n"},
		} {
			if got := s.mustCtl(strings.Fields(step[0])...); got != step[1] {
				t.Errorf("%s prints %q, want %q", step[0], got, step[1])
			}
			if step[0] == "auth enable" {
				s.wantCtlError(1, "etcdserver: user name is empty", "put", "a", "1")
				s.wantCtlError(1, "etcdserver: permission denied", "--user", "alice:a", "put", "m", "1")
				s.wantCtlError(1, "etcdserver: permission denied", "--user", "alice:a", "user", "list")
				s.wantCtlError(2, "etcdserver: authentication failed, invalid user ID or password", "--user", "alice:x", "get", "a")
			}
		}
	})
}
