package settings

import (
	"strconv"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server"
)

// users are the settings of passwords and tokens, as the user wrote them.
type users struct{ token, ttl, cost, audit string }

var userSettings = []setting{
	{"auth-token", "simple", "the `kind` of tokens that users get for their passwords: simple, or jwt,sign-method=ES256,pub-key=FILE,priv-key=FILE,ttl=10m", func(s *Server) *string { return &s.users.token }},
	{"auth-token-ttl", "300", "the `seconds` after its last use at which a simple token expires", func(s *Server) *string { return &s.users.ttl }},
	{"audit", "false", "begin the audit log at once, and not when the first user is added; the cluster can then no longer return to an earlier version", func(s *Server) *string { return &s.users.audit }},
	{"bcrypt-cost", strconv.Itoa(server.DefaultBcryptCost), "the `cost` of hashing passwords with bcrypt, from 4 to 31; each step doubles the time", func(s *Server) *string { return &s.users.cost }},
}

// maxTokenSeconds bounds --auth-token-ttl.
const maxTokenSeconds = 1 << 31

// Users writes the settings of passwords and tokens into the configurations of the front and the member. [server.Config.Validate]
// checks the others.
func (s Server) Users(front *server.Config, member *node.Config) error {
	seconds, err := strconv.ParseInt(s.users.ttl, 10, 64)
	if err != nil || seconds < 1 || seconds > maxTokenSeconds {
		return command.WrongUsage("auth-token-ttl is %q: write a whole number of seconds of at least 1", s.users.ttl)
	}
	if member.Audit, err = strconv.ParseBool(s.users.audit); err != nil {
		return command.WrongUsage("audit is %q: write true or false", s.users.audit)
	}
	if front.BcryptCost, err = strconv.Atoi(s.users.cost); err != nil || front.BcryptCost == 0 {
		return command.WrongUsage("bcrypt-cost is %q: write a whole number from 4 to 31", s.users.cost)
	}
	front.AuthToken, front.Logins = s.users.token, server.NewLogins(time.Duration(seconds)*time.Second)
	member.LoggedIn = front.Logins.Learn
	return nil
}
