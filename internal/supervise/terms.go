package supervise

import (
	"fmt"
	"time"
)

// Policy is what becomes of a command whose lease is about to be lost, or is lost.
type Policy uint8

// The policies.
const (
	Term Policy = iota // SIGTERM at the deadline less KillAfter, then SIGKILL before the deadline
	Kill               // only SIGKILL, shortly before the deadline
	Warn               // it runs on; only the wrapper's own end ends it
)

// ParsePolicy reads term, kill or warn.
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

// Terms are how long a command may go on.
type Terms struct {
	// TTL is for how long one renewal of the lease can be relied on.
	TTL time.Duration
	// KillAfter is how long the command has from SIGTERM to SIGKILL, or to the deadline, whichever is first.
	KillAfter time.Duration
	OnLost    Policy
	// Wait says to wait for what the command leaves running when it ends, instead of ending it.
	Wait bool
}

const (
	// At most so much of a lease may be KillAfter. A lease is renewed after a third of its TTL, and again
	// later if that failed; only after that has anything to be ended. It is a little more than the third that
	// people are told of, so that it does not matter whether they mean the TTL or what can be relied on of it.
	killAfterPercent = 35
	killAfterShare   = 3

	// What is left of a lease when SIGKILL is sent is a share of its TTL, within bounds. It pays for waking
	// up late on a busy machine.
	leadShare        = 20
	minLead, maxLead = 50 * time.Millisecond, 500 * time.Millisecond
	// minKillAfter, in leads, leaves the command some time between SIGTERM and SIGKILL.
	minKillAfter = 2
	// leastTold is a little more than the shortest lease: people are told of TTLs, of which less is relied on.
	leastTold = 350 * time.Millisecond
)

// DefaultKillAfter is five seconds, or what a shorter TTL allows.
func DefaultKillAfter(ttl time.Duration) time.Duration {
	return min(5*time.Second, ttl/killAfterShare)
}

// Lead is how long before the deadline SIGKILL is sent.
func (t Terms) Lead() time.Duration {
	return min(max(t.TTL/leadShare, minLead), maxLead)
}

// Validate says what is wrong with terms that cannot be kept.
func (t Terms) Validate() error {
	least := minKillAfter * t.Lead()
	switch {
	case t.KillAfter <= 0:
		return fmt.Errorf("%v is too short to end a command in: allow it %v or more", t.KillAfter, least.Round(time.Millisecond))
	case t.OnLost == Warn:
		return nil
	case t.TTL < killAfterShare*least:
		return fmt.Errorf("a lease of %v is too short to end a command in time: let it last %v or more", t.TTL.Round(time.Millisecond), leastTold)
	case t.OnLost == Kill:
		return nil
	case t.KillAfter < least:
		return fmt.Errorf("%v are too short between SIGTERM and SIGKILL, with a lease of %v: allow the command %v or more", t.KillAfter, t.TTL.Round(time.Millisecond), least.Round(time.Millisecond))
	case t.KillAfter > t.TTL/100*killAfterPercent:
		return fmt.Errorf("a lease of %v is too short to give a command %v to end, because a renewal must be allowed to fail before that: "+
			"let the lease last %v or more, or allow the command %v or less",
			t.TTL.Round(time.Millisecond), t.KillAfter, killAfterShare*t.KillAfter, (t.TTL / killAfterShare).Truncate(time.Millisecond))
	}
	return nil
}
