package webconsole

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

// Server is a store that is a Leasekeeper server. Only such a store has members and an audit log.
type Server interface {
	// Members returns the state of each member of the cluster.
	Members(context.Context) ([]*leasekeeperv1.Member, error)
	// AuditLog returns a page of the audit log, the oldest records first.
	AuditLog(context.Context, *leasekeeperv1.AuditRequest) (*leasekeeperv1.AuditResponse, error)
	// AttachedKeys returns the keys of etcd's API that are attached to the lease which holds a name.
	AttachedKeys(ctx context.Context, name string) ([]string, error)
}

const (
	// serverLimit bounds the time for one reading of the members, or of the audit log.
	serverLimit = 5 * time.Second
	// mostAudited is how many records of the audit log the console keeps: the newest. A server keeps no more.
	mostAudited = 10_000
	// auditPages bounds the requests of one reading of the audit log. The next reading goes on.
	auditPages = 16
	// mostKeys is how many attached keys the page of a name lists.
	mostKeys = 20
)

// topic is something that is about the server and about no name.
type topic string

const (
	noTopic      topic = ""
	clusterTopic topic = "cluster"
	auditTopic   topic = "audit"
	foreignTopic topic = "foreign" // locks of other programs
)

// clusterFacts are the members at one time. They are immutable.
type clusterFacts struct {
	members  []memberjson.Member
	readAt   clock.Instant
	err      error    // why they could not be read, or nil
	renewals renewals // of the leader
	// wholeLease and wholePromise are the longest master lease and promise that were ever seen, in milliseconds. The bars
	// of the pages are parts of them.
	wholeLease, wholePromise int64
}

// auditFacts are the records of the audit log at one time. They are immutable.
type auditFacts struct {
	records   []memberjson.AuditRecord // the newest first
	recording bool                     // the log has begun
	after     uint64                   // the sequence behind which the next reading begins
	err       error                    // why it could not be read, or nil
}

// readServer reads what is wanted about the server. A failure is no failure of the round: the names may still be read.
func (r *reader) readServer(ctx context.Context, next *knowledge, wants []want) {
	server, ok := r.store.(Server)
	if !ok {
		return
	}
	wanted := func(t topic) bool { return slices.ContainsFunc(wants, func(w want) bool { return w.topic == t }) }
	if wanted(clusterTopic) {
		next.cluster = r.readCluster(ctx, server, next.cluster)
		next.plots.renewed = r.rings.renewalsPerSecond(r.clock())
	}
	if wanted(auditTopic) {
		next.audit = readAudit(ctx, server, next.audit)
	}
}

// readCluster reads the members. before is the last reading; nil for none.
func (r *reader) readCluster(ctx context.Context, server Server, before *clusterFacts) *clusterFacts {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	facts := new(clusterFacts)
	if before != nil {
		*facts = *before
	}
	members, err := server.Members(ctx)
	if facts.err = err; err != nil {
		return facts
	}
	facts.members, facts.readAt = memberjson.OfMembers(members), r.clock()
	last := facts.renewals
	facts.renewals = renewals{}
	if i := facts.leading(); i >= 0 {
		facts.renewals = renewalsOf(members[i], facts.readAt)
	}
	r.rings.countRenewals(last, facts.renewals)
	for _, m := range facts.members {
		facts.wholeLease, facts.wholePromise = max(facts.wholeLease, m.MasterLeaseMs), max(facts.wholePromise, m.PromiseMs)
	}
	return facts
}

// readAudit reads the records that came since the last reading. before is that reading; nil for none.
func readAudit(ctx context.Context, server Server, before *auditFacts) *auditFacts {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	facts := new(auditFacts)
	if before != nil {
		*facts = *before
	}
	var later []memberjson.AuditRecord
	for range auditPages {
		page, err := server.AuditLog(ctx, &leasekeeperv1.AuditRequest{After: facts.after})
		if facts.err = err; err != nil {
			break
		}
		facts.recording, facts.after = page.Recording, page.After
		for _, record := range page.Records {
			later = append(later, memberjson.OfAuditRecord(record))
		}
		if !page.More {
			break
		}
	}
	slices.Reverse(later)
	all := slices.Concat(later, facts.records)
	facts.records = all[:min(len(all), mostAudited)]
	return facts
}

// attached are the keys that are attached to the lease of a name. It is immutable.
type attached struct {
	keys []string
	err  error // why they could not be read, or nil
}

// readAttached reads the keys that are attached to the lease of a name. It returns nil if the store is no server.
func (r *reader) readAttached(ctx context.Context, name string) *attached {
	server, ok := r.store.(Server)
	if !ok {
		return nil
	}
	keys, err := server.AttachedKeys(ctx, name)
	return &attached{keys, err}
}

// inWords returns a text of the keys, one a line, for people.
func (a *attached) inWords() string {
	if a.err != nil {
		return "They cannot be read: " + backend.Printable(a.err.Error())
	}
	var lines []string
	for _, key := range a.keys[:min(len(a.keys), mostKeys)] {
		lines = append(lines, backend.Printable(key))
	}
	if n := len(a.keys) - mostKeys; n > 0 {
		lines = append(lines, fmt.Sprintf("… and %s more", grouped(n)))
	}
	return strings.Join(lines, "\n")
}

// leader returns the member that leads by the newest term, or nil.
func (f *clusterFacts) leader() *memberjson.Member {
	if i := f.leading(); i >= 0 {
		return &f.members[i]
	}
	return nil
}

// leading returns the place of the leader among the members, or -1.
func (f *clusterFacts) leading() int {
	found := -1
	for i, m := range f.members {
		if m.Role == memberjson.Leader && (found < 0 || m.Term > f.members[found].Term) {
			found = i
		}
	}
	return found
}

// alarms returns what an operator should look at, in sentences without a full stop.
func (f *clusterFacts) alarms() []string {
	found := []string{}
	if f.err != nil {
		found = append(found, "the members cannot be read: "+backend.Printable(f.err.Error()))
	}
	leader := f.leader()
	if f.members != nil && leader == nil {
		found = append(found, "no member that answers leads")
	}
	for i := range f.members {
		m := &f.members[i]
		switch {
		case m.State != memberjson.Up:
			found = append(found, nameOfMember(m)+" is "+m.State+": "+backend.Printable(m.Detail))
		case !m.ClocksTrusted:
			found = append(found, nameOfMember(m)+" does not trust its clocks")
		}
		if m.Shortage != "" {
			found = append(found, nameOfMember(m)+" takes no more data: "+backend.Printable(m.Shortage))
		}
	}
	if leader == nil {
		return found
	}
	for _, p := range leader.Peers {
		if p.ClockSuspect {
			found = append(found, fmt.Sprintf("the clocks of %s seem to run outside the drift bound", backend.Printable(p.Name)))
		}
	}
	return found
}

// nameOfMember returns the name of a member for people.
func nameOfMember(m *memberjson.Member) string {
	if m.Name == "" {
		return m.MemberID
	}
	return backend.Printable(m.Name)
}

// duration adds the cell of a remaining time in milliseconds, as a bar of a whole. readAt is when it was read. Zero is a dash.
func (c cells) duration(key string, ms, whole int64, readAt clock.Instant, now moment) {
	if ms == 0 {
		c.text(key, "", plain)
		return
	}
	left := max(0, ms-now.clock.Elapsed(readAt).Milliseconds())
	if left == 0 {
		c[key] = cell{Text: "ending", Tone: warn, Bar: &bar{0, whole}}
		return
	}
	c[key] = cell{Text: leftInWords(time.Duration(left) * time.Millisecond), Bar: &bar{left, whole}}
}

// addCluster adds the cells about the cluster that the overview shows.
func addCluster(c cells, k *knowledge, now moment) {
	f := k.cluster
	if f == nil {
		f = new(clusterFacts)
	}
	leader := f.leader()
	c.text("cluster.leader", "", plain)
	c.text("cluster.term", "", plain)
	c.text("cluster.lease", "", plain)
	if leader != nil {
		c["cluster.leader"] = cell{Text: nameOfMember(leader), Link: "cluster"}
		c.text("cluster.term", fmt.Sprint(leader.Term), plain)
		c.duration("cluster.lease", leader.MasterLeaseMs, f.wholeLease, f.readAt, now)
	}
	up := 0
	for _, m := range f.members {
		if m.State == memberjson.Up {
			up++
		}
	}
	c.text("cluster.up", "", plain)
	if len(f.members) > 0 {
		c.text("cluster.up", fmt.Sprintf("%d of %d", up, len(f.members)), toneIf(up < len(f.members), warn))
	}
	c.text("cluster.alarms", "None", quiet)
	if alarms := f.alarms(); len(alarms) > 0 {
		c.text("cluster.alarms", strings.Join(alarms, "; "), bad)
	} else if k.cluster == nil {
		c.text("cluster.alarms", "", plain)
	}
}
