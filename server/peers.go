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
	// introduceInterval is the time between two questions to the peers where clients reach them. Clients read the
	// answers also while a peer is down.
	introduceInterval = 10 * time.Second
	// introduceAgain is the same while a peer was never heard.
	introduceAgain = time.Second
)

// peers remembers where clients reach the other members, as these have said.
type peers struct {
	s *Server

	mu         sync.Mutex
	clientURLs map[uint64][]string // by member; what it said last
}

func newPeers(s *Server) *peers { return &peers{s: s, clientURLs: make(map[uint64][]string)} }

// follow asks the peers now and then, until the server stops.
func (p *peers) follow() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.s.life.Done():
			return
		}
		wait := introduceInterval
		for _, m := range p.all(p.s.life.Context()) {
			if len(m.ClientUrls) == 0 {
				wait = introduceAgain
			}
		}
		timer.Reset(wait)
	}
}

// ask returns how all members are, in the order of the configuration.
func (p *peers) ask(ctx context.Context) ([]*leasekeeperv1.Member, error) {
	own, err := p.s.ownMember(ctx)
	if err != nil {
		return nil, err
	}
	all := p.all(ctx)
	for i, m := range all {
		if m.Id == own.Id {
			all[i] = own
		}
	}
	return all, nil
}

// all asks every other member, all at the same time, and returns what the configuration says of those that do not
// answer, and of this one.
func (p *peers) all(ctx context.Context) []*leasekeeperv1.Member {
	members := p.s.cfg.Cluster.Members
	all := make([]*leasekeeperv1.Member, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		all[i] = &leasekeeperv1.Member{Id: m.ID, Name: m.Name, PeerUrl: m.PeerURL, ClientUrls: p.known(m.ID)}
		if m.ID == p.s.member.Header().MemberID {
			all[i].ClientUrls = p.s.clientURLs()
			continue
		}
		asking.Go(func() {
			if said, err := p.get(ctx, m); err != nil {
				all[i].Trouble = forwarding.WhyNoAnswer(err)
			} else {
				all[i] = said
			}
		})
	}
	asking.Wait()
	return all
}

// get asks one member. What the configuration says of it counts for all members alike.
func (p *peers) get(ctx context.Context, m ClusterMember) (*leasekeeperv1.Member, error) {
	var resp *leasekeeperv1.GetMemberResponse
	_, err := p.s.forwarder.Ask(ctx, m.ID, func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (err error) {
		resp, err = leasekeeperv1.NewMembersClient(conn).Get(ctx, &leasekeeperv1.GetMemberRequest{}, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	said := resp.GetMember()
	if said.GetId() != m.ID {
		return nil, errors.New("another member answers in its place")
	}
	said.Name, said.PeerUrl, said.Trouble = m.Name, m.PeerURL, ""
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(said.ClientUrls) > 0 { // none before it listens
		p.clientURLs[m.ID] = said.ClientUrls
	}
	return said, nil
}

// known returns where clients reach a member, nil if it was never heard.
func (p *peers) known(member uint64) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clientURLs[member]
}
