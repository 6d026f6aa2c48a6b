package server

import (
	"time"

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

// newGuard makes the checks of rights.
func (s *Server) newGuard() (err error) {
	c := guard.Config{
		Member: s.member, AuthToken: s.cfg.AuthToken, Logins: s.cfg.Logins, Log: s.log, CertificateNames: s.cfg.ClientCAFile != "",
	}
	if s.cfg.Cluster != nil {
		c.OpenPeers, c.Members = s.cfg.Cluster.Peers.Open, s.listed
	}
	s.guard, err = guard.New(c)
	return err
}
