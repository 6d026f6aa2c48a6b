package lessor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// cluster is a set of members that apply one log, each by its own clocks. Nothing in it happens by itself: a
// test drives each step.
type cluster struct {
	members []*member
	log     []entry
	term    uint64
	leader  *member // the primary; nil while there is none
	outbox  []any   // what the leader proposed and the log does not hold yet, in order
}

type entry struct {
	term    uint64
	command any
}

type (
	grantCommand struct {
		id  ID
		ttl time.Duration
	}
	revokeCommand     struct{ id ID }
	leadershipCommand struct{}
)

type member struct {
	name    string
	cluster *cluster
	lessor  *Lessor
	clocks  *clock.Manual
	applied int // number of applied entries
	lags    bool
	deleted []string // the deleted keys, one line per transaction
}

func newCluster(config Config, checkpoints bool, names ...string) *cluster {
	c := &cluster{}
	for _, name := range names {
		m := &member{name: name, cluster: c, lessor: New(config), clocks: clock.NewManual(clock.Instant{})}
		m.install(checkpoints)
		c.members = append(c.members, m)
	}
	return c
}

func (m *member) install(checkpoints bool) {
	m.lessor.SetRangeDeleter(func() TxnDelete { return &txn{member: m} })
	if !checkpoints {
		return
	}
	m.lessor.SetCheckpointer(func(checkpoints []Checkpoint, cleared []Cleared) {
		if m != m.cluster.leader {
			return // a member that is not primary proposes nothing
		}
		for _, c := range checkpoints {
			m.cluster.outbox = append(m.cluster.outbox, c)
		}
		for _, c := range cleared {
			m.cluster.outbox = append(m.cluster.outbox, c)
		}
	})
}

// txn records the keys that the lessor deletes in one transaction.
type txn struct {
	member *member
	keys   []string
}

func (t *txn) DeleteRange(key, end []byte) (n, rev int64) {
	if end != nil {
		panic("the lessor deletes single keys")
	}
	t.keys = append(t.keys, string(key))
	return 1, 1
}

func (t *txn) End() { t.member.deleted = append(t.member.deleted, strings.Join(t.keys, " ")) }

func (c *cluster) member(name string) *member {
	for _, m := range c.members {
		if m.name == name {
			return m
		}
	}
	panic("no member " + name)
}

func (c *cluster) append(term uint64, command any) {
	c.log = append(c.log, entry{term, command})
}

// applyNext applies one entry and describes the result.
func (m *member) applyNext() string {
	e := m.cluster.log[m.applied]
	m.applied++
	at, now := At(uint64(m.applied), 0), m.clocks.Now()
	switch command := e.command.(type) {
	case grantCommand:
		lease, err := m.lessor.Grant(command.id, command.ttl, at, now)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("granted %d for %v at %v", lease.ID, lease.TTL, lease.Generation)
	case revokeCommand:
		if _, err := m.lessor.Revoke(command.id); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("revoked %d", command.id)
	case Expiry:
		_, ok := m.lessor.Expire(command, e.term)
		return describe(command) + outcome(ok)
	case Checkpoint:
		return describe(command) + outcome(m.lessor.Checkpoint(command, e.term, now))
	case Cleared:
		return describe(command) + outcome(m.lessor.Clear(command, e.term, at))
	case leadershipCommand:
		m.lessor.BeginLeadership(at, now)
		return fmt.Sprintf("term %d begins at %v", e.term, at)
	}
	panic(fmt.Sprintf("unknown command %T", e.command))
}

func outcome(ok bool) string {
	if ok {
		return ": applied"
	}
	return ": skipped"
}

func describe(command any) string {
	switch c := command.(type) {
	case Expiry:
		return fmt.Sprintf("expire %s (term %d, decided at %v)", c.Ref, c.Term, c.DecidedAt)
	case Checkpoint:
		return fmt.Sprintf("checkpoint %s with %v left (term %d, decided at %v)", c.Ref, c.Remaining, c.Term, c.DecidedAt)
	case Cleared:
		return fmt.Sprintf("clear %s (term %d)", c.Ref, c.Term)
	}
	panic(fmt.Sprintf("unknown command %T", command))
}

// String shows a Ref as id@generation.
func (r Ref) String() string { return fmt.Sprintf("%d@%v", r.ID, r.Generation) }

func (m *member) catchUp() (results []string) {
	for m.applied < len(m.cluster.log) {
		results = append(results, m.applyNext())
	}
	return results
}

// applyAll makes all members catch up, except those that lag, and returns the results. It panics if two
// members disagree on a result.
func (c *cluster) applyAll() []string {
	var results []string
	for _, m := range c.members {
		if m.lags {
			continue
		}
		if got := m.catchUp(); len(got) > len(results) {
			if !slices.Equal(got[len(got)-len(results):], results) {
				panic(fmt.Sprintf("members disagree: %v and %v", got, results))
			}
			results = got
		} else if !slices.Equal(results[len(results)-len(got):], got) {
			panic(fmt.Sprintf("members disagree: %v and %v", results, got))
		}
	}
	return results
}

// lead makes m the leader of a new term. What the previous leader had in the outbox is lost.
func (c *cluster) lead(m *member, extend time.Duration) []string {
	if c.leader != nil {
		c.leader.lessor.Demote()
	}
	c.leader, c.outbox = nil, nil
	c.term++
	c.append(c.term, leadershipCommand{})
	results := c.applyAll()
	if m.lags {
		m.catchUp()
	}
	c.leader = m
	m.lessor.Promote(extend, m.clocks.Now(), c.term)
	return results
}

// due calls Due on the leader and puts the results into the outbox.
func (c *cluster) due() (proposed []any) {
	before := len(c.outbox)
	for _, e := range c.leader.lessor.Due(c.leader.clocks.Now(), At(uint64(c.leader.applied), 0)) {
		c.outbox = append(c.outbox, e)
	}
	return c.outbox[before:]
}

// drop reports to the leader that a proposal was dropped.
func (c *cluster) drop(command any) {
	switch command := command.(type) {
	case Expiry:
		c.leader.lessor.ExpiryDropped([]Expiry{command})
	case Checkpoint:
		c.leader.lessor.CheckpointsDropped([]Checkpoint{command})
	case Cleared:
		c.leader.lessor.ClearsDropped([]Cleared{command})
	}
}

// commit moves everything from the outbox into the log and applies it.
func (c *cluster) commit() []string {
	for _, command := range c.outbox {
		c.append(c.term, command)
	}
	c.outbox = nil
	return c.applyAll()
}
