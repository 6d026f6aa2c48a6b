package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
)

const (
	// rosterInterval is the time between two queries to the other members for the addresses of their clients. The
	// server keeps the answers, so clients receive them while a member is down.
	rosterInterval = 10 * time.Second
	// rosterRetryInterval replaces rosterInterval while some member has never answered.
	rosterRetryInterval = time.Second
)

// roster remembers where clients reach the other members. Its methods are safe for concurrent use.
type roster struct {
	s *Server

	mu         sync.Mutex
	clientURLs map[uint64][]string // by member; its last report
}

func newRoster(s *Server) *roster { return &roster{s: s, clientURLs: make(map[uint64][]string)} }

// refresh queries the other members at intervals, until the server stops.
func (r *roster) refresh() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.s.life.Done():
			return
		}
		wait := rosterInterval
		for _, m := range r.queryAll(r.s.life.Context()) {
			if len(m.ClientUrls) == 0 {
				wait = rosterRetryInterval
			}
		}
		timer.Reset(wait)
	}
}

// list returns the state of all members, in the order of the configuration.
func (r *roster) list(ctx context.Context) ([]*leasekeeperv1.Member, error) {
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
// what the configuration says.
func (r *roster) queryAll(ctx context.Context) []*leasekeeperv1.Member {
	members := r.s.cfg.Cluster.Members
	all := make([]*leasekeeperv1.Member, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		all[i] = &leasekeeperv1.Member{Id: m.ID, Name: m.Name, PeerUrl: m.PeerURL, ClientUrls: r.known(m.ID)}
		if m.ID == r.s.member.Header().MemberID {
			all[i].ClientUrls = r.s.clientURLs()
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

// query asks one member for its state. Its name and URL come from the configuration, so that all members agree on them.
func (r *roster) query(ctx context.Context, m ClusterMember) (*leasekeeperv1.Member, error) {
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
	reported.Name, reported.PeerUrl, reported.Trouble = m.Name, m.PeerURL, ""
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(reported.ClientUrls) > 0 { // a member reports none before it listens
		r.clientURLs[m.ID] = reported.ClientUrls
	}
	return reported, nil
}

// known returns where clients reach a member, nil if the member has never answered.
func (r *roster) known(member uint64) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clientURLs[member]
}
