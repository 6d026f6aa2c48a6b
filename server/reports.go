package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
)

const (
	// reportInterval is the time between two queries to the other members for their names and the addresses of their
	// clients. The server keeps the answers, so clients receive them while a member is down.
	reportInterval = 10 * time.Second
	// reportRetryInterval replaces reportInterval while some member has never answered, or the list of members changes.
	reportRetryInterval = time.Second
)

// reports remembers what the members say of themselves. Its methods are safe for concurrent use.
type reports struct {
	s *Server

	mu     sync.Mutex
	latest map[uint64]report // by member
}

// report is what a member says of itself.
type report struct {
	name       string
	clientURLs []string
}

func newReports(s *Server) *reports { return &reports{s: s, latest: make(map[uint64]report)} }

// refresh queries the other members at intervals, until the server stops. A leader writes what they say into the list of
// members, if there is one.
func (r *reports) refresh() {
	ticker := time.NewTicker(reportRetryInterval)
	defer ticker.Stop()
	var seen []roster.Member
	var due time.Time
	for {
		if members := r.s.listed(); !time.Now().Before(due) || !reflect.DeepEqual(members, seen) {
			seen, due = members, time.Now().Add(r.queryAndDescribe())
		}
		select {
		case <-ticker.C:
		case <-r.s.life.Done():
			return
		}
	}
}

// queryAndDescribe queries the other members once, and returns for how long their answers suffice if the list of members
// does not change.
func (r *reports) queryAndDescribe() time.Duration {
	r.forget()
	wait := reportInterval
	for _, m := range r.queryAll(admission.AsServer(r.s.life.Context())) {
		if len(m.ClientUrls) == 0 {
			wait = reportRetryInterval
		}
	}
	if r.describe(r.s.life.Context()) {
		wait = reportRetryInterval
	}
	return wait
}

// forget drops what removed members have said.
func (r *reports) forget() {
	members := r.s.listed()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.latest, func(id uint64, _ report) bool {
		return !slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID == id })
	})
}

// describe writes the name and the client URLs of one member into the list of members, if they differ from the list. It
// reports whether it tried. Without a list it does nothing: a cluster whose members never change needs none.
func (r *reports) describe(ctx context.Context) bool {
	if !r.s.clusterNode.Listed() || !r.s.forwarder.Leads() {
		return false
	}
	for _, m := range r.s.listed() {
		said, ok := r.of(m.ID)
		if !ok || said.name == m.Name && slices.Equal(said.clientURLs, m.ClientURLs) {
			continue
		}
		c := roster.Change{Kind: roster.Describe, Member: roster.Member{ID: m.ID, Name: said.name, ClientURLs: said.clientURLs}}
		if _, _, err := r.s.clusterNode.ChangeMembers(ctx, c); err != nil {
			r.s.log.Debug("the list of members could not be completed; the server tries again", "error", err)
		}
		return true
	}
	return false
}

// of returns what a member said last. ok is false if it has never said anything.
func (r *reports) of(member uint64) (said report, ok bool) {
	if member == r.s.member.Header().MemberID {
		urls := r.s.clientURLs()
		return report{r.s.cfg.Name, urls}, len(urls) > 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	said, ok = r.latest[member]
	return said, ok
}

// complete returns a member of the list with what it said of itself.
func (r *reports) complete(m roster.Member) roster.Member {
	if said, ok := r.of(m.ID); ok {
		m.Name, m.ClientURLs = cmp.Or(m.Name, said.name), said.clientURLs
	}
	return m
}

// list returns the state of all members, in the order in which they are shown.
func (r *reports) list(ctx context.Context) ([]*leasekeeperv1.Member, error) {
	own, err := r.s.ownMember(ctx)
	if err != nil {
		return nil, err
	}
	all := r.queryAll(ctx)
	for i, m := range all {
		if m.Id == own.Id {
			all[i] = own
		}
	}
	return all, nil
}

// queryAll queries all other members at the same time. For this member, and for members that do not answer, it returns
// what the list of members says.
func (r *reports) queryAll(ctx context.Context) []*leasekeeperv1.Member {
	members := r.s.listed()
	all := make([]*leasekeeperv1.Member, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		m = r.complete(m)
		all[i] = &leasekeeperv1.Member{Id: m.ID, Name: m.Name, PeerUrl: peerURL(m), ClientUrls: m.ClientURLs, Learner: m.Learner}
		if m.ID == r.s.member.Header().MemberID {
			continue
		}
		asking.Go(func() {
			if reported, err := r.query(ctx, m); err != nil {
				all[i].Trouble = forwarding.WhyNoAnswer(err)
			} else {
				all[i] = reported
			}
		})
	}
	asking.Wait()
	return all
}

// query asks one member for its state. Its name and URL come from the list of members, so that all members agree on them.
func (r *reports) query(ctx context.Context, m roster.Member) (*leasekeeperv1.Member, error) {
	var resp *leasekeeperv1.GetMemberResponse
	_, err := r.s.forwarder.Ask(ctx, m.ID, func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (err error) {
		resp, err = leasekeeperv1.NewMembersClient(conn).Get(ctx, &leasekeeperv1.GetMemberRequest{}, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	reported := resp.GetMember()
	if reported.GetId() != m.ID {
		return nil, errors.New("another member answered at its address: correct the addresses of the members")
	}
	if len(reported.ClientUrls) > 0 { // a member reports none before it listens
		r.mu.Lock()
		r.latest[m.ID] = report{reported.Name, reported.ClientUrls}
		r.mu.Unlock()
	}
	reported.Name, reported.PeerUrl, reported.Learner, reported.Trouble = cmp.Or(m.Name, reported.Name), peerURL(m), m.Learner, ""
	return reported, nil
}

// peerURL returns where the other members reach a member; "" if the list does not say.
func peerURL(m roster.Member) string {
	if len(m.PeerURLs) == 0 {
		return ""
	}
	return m.PeerURLs[0]
}
