package server

import (
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
)

// Defaults of users, as in etcd.
const (
	DefaultBcryptCost   = login.DefaultCost
	DefaultAuthTokenTTL = login.DefaultTTL
)

// Logins are the simple tokens that a member knows; see [Config.Logins].
type Logins = login.Logins

// NewLogins makes Logins that expire when they were not used for a time.
func NewLogins(ttl time.Duration) *Logins { return login.NewLogins(ttl) }

// accessMember is what checks of rights use of a node.
type accessMember interface {
	// Access returns the policy that the member has applied.
	Access() *access.Policy
	ChangeAccess(context.Context, access.Command) (replica.Header, error)
	// Login tells all members of a token.
	Login(context.Context, access.Login) (index uint64, header replica.Header, err error)
}

// newGuard makes the checks of rights.
func (s *Server) newGuard() (err error) {
	c := guard.Config{
		Member: s.member, AuthToken: s.cfg.AuthToken, Logins: s.cfg.Logins, Log: s.log, CertificateNames: s.cfg.ClientCAFile != "",
	}
	if s.cfg.Cluster != nil {
		c.OpenPeers = s.cfg.Cluster.Peers.Open
	}
	s.guard, err = guard.New(c)
	return err
}
