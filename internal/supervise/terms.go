package supervise

import (
	"fmt"
	"time"
)

// Policy is what happens to a command when its lease is lost or about to expire.
type Policy uint8

// The policies.
const (
	Term Policy = iota // SIGTERM at KillAfter before the deadline, then SIGKILL before the deadline
	Kill               // only SIGKILL, shortly before the deadline
	Warn               // the command runs on; it is ended only if the wrapper ends
)

// ParsePolicy returns the policy named term, kill or warn.
func ParsePolicy(text string) (Policy, error) {
	for p, name := range policyNames {
		if text == name {
			return Policy(p), nil
		}
	}
	return Term, fmt.Errorf("unknown policy %q: write term, kill or warn", text)
}

var policyNames = [...]string{Term: "term", Kill: "kill", Warn: "warn"}

func (p Policy) String() string { return policyNames[p] }

// Terms determine how long a command may run.
type Terms struct {
	// TTL is for how long the holder can rely on one renewal of the lease.
	TTL time.Duration
	// KillAfter is how long the command has from SIGTERM to SIGKILL, or to the deadline, whichever is earlier.
	KillAfter time.Duration
	OnLost    Policy
	// Wait makes Run wait for the processes that the command leaves running, instead of ending them.
	Wait bool
}

const (
	// KillAfter may be at most this part of a lease. A lease is renewed after a third of its TTL, and that renewal must
	// be able to fail once before the command is ended. The part is a little more than the third in messages, because
	// those may mean the full TTL, of which the holder can rely on less.
	killAfterPercent = 35
	killAfterShare   = 3

	// SIGKILL is sent a part of the TTL before the deadline, within bounds. This time allows for a late wake-up on a busy
	// machine.
	leadShare        = 20
	minLead, maxLead = 50 * time.Millisecond, 500 * time.Millisecond
	// minKillAfter, in leads, is the least time between SIGTERM and SIGKILL.
	minKillAfter = 2
	// shortestTTL is what messages name as the shortest lease. It is a little more than that, because messages name full
	// TTLs, of which the holder can rely on less.
	shortestTTL = 350 * time.Millisecond
)

// DefaultKillAfter returns five seconds, or less if the TTL is short.
func DefaultKillAfter(ttl time.Duration) time.Duration {
	return min(5*time.Second, ttl/killAfterShare)
}

// Lead returns how long before the deadline SIGKILL is sent.
func (t Terms) Lead() time.Duration {
	return min(max(t.TTL/leadShare, minLead), maxLead)
}

// Validate returns an error if a command cannot be ended in time under these terms.
func (t Terms) Validate() error {
	least := minKillAfter * t.Lead()
	switch {
	case t.KillAfter <= 0:
		return fmt.Errorf("%v is too short to end a command in: allow it %v or more", t.KillAfter, least.Round(time.Millisecond))
	case t.OnLost == Warn:
		return nil
	case t.TTL < killAfterShare*least:
		return fmt.Errorf("a lease of %v is too short to end a command in time: let it last %v or more", t.TTL.Round(time.Millisecond), shortestTTL)
	case t.OnLost == Kill:
		return nil
	case t.KillAfter < least:
		return fmt.Errorf("%v between SIGTERM and SIGKILL is too short with a lease of %v: allow the command %v or more", t.KillAfter, t.TTL.Round(time.Millisecond), least.Round(time.Millisecond))
	case t.KillAfter > t.TTL/100*killAfterPercent:
		return fmt.Errorf("a lease of %v is too short to give a command %v to end, because a renewal must be allowed to fail before that: "+
			"let the lease last %v or more, or allow the command %v or less",
			t.TTL.Round(time.Millisecond), t.KillAfter, killAfterShare*t.KillAfter, (t.TTL / killAfterShare).Truncate(time.Millisecond))
	}
	return nil
}
