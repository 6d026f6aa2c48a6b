package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

const (
	// introduceInterval is how often the others are asked where clients reach them, which may be told when they are
	// down.
	introduceInterval = 10 * time.Second
	// introduceAgain is the same for those that were never heard.
	introduceAgain = time.Second
	// othersLimit bounds how long another member may take to say how it is.
	othersLimit = time.Second
)

// others remembers what the other members of the group have said of themselves.
type others struct {
	s *Server

	mu         sync.Mutex
	clientURLs map[uint64][]string // by member; what it said last
}

func newOthers(s *Server) *others { return &others{s: s, clientURLs: make(map[uint64][]string)} }

// follow asks the others now and then, until the server stops.
func (o *others) follow() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-o.s.life.Done():
			return
		}
		wait := introduceInterval
		for _, m := range o.all(o.s.life.Context()) {
			if m.Trouble != "" && len(m.ClientUrls) == 0 {
				wait = introduceAgain
			}
		}
		timer.Reset(wait)
	}
}

// ask returns how all members are, in the order of the configuration.
func (o *others) ask(ctx context.Context) ([]*leasekeeperv1.Member, error) {
	own, err := o.s.ownMember(ctx)
	if err != nil {
		return nil, err
	}
	all := o.all(ctx)
	for i, m := range all {
		if m.Id == own.Id {
			all[i] = own
		}
	}
	return all, nil
}

// all asks every other member, all at the same time, and returns what the configuration says of those that do not
// answer, and of this one.
func (o *others) all(ctx context.Context) []*leasekeeperv1.Member {
	ctx, cancel := context.WithTimeout(ctx, othersLimit)
	defer cancel()
	members := o.s.cfg.Group.Members
	all := make([]*leasekeeperv1.Member, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		all[i] = &leasekeeperv1.Member{Id: m.ID, Name: m.Name, PeerUrl: m.PeerURL, ClientUrls: o.known(m.ID)}
		if m.ID == o.s.self() {
			all[i].ClientUrls = o.s.clientURLs()
			continue
		}
		asking.Go(func() {
			if said, err := o.get(ctx, m); err != nil {
				all[i].Trouble = whyNoAnswer(err)
			} else {
				all[i] = said
			}
		})
	}
	asking.Wait()
	return all
}

// get asks one member. What the configuration says of it counts for all members alike.
func (o *others) get(ctx context.Context, m GroupMember) (*leasekeeperv1.Member, error) {
	conn := o.s.cfg.Group.Peers.Conn(m.ID)
	if conn == nil {
		return nil, errNotReached
	}
	resp, err := leasekeeperv1.NewMembersClient(conn).Get(ctx, &leasekeeperv1.GetMemberRequest{}, outgoing...)
	if err != nil {
		return nil, err
	}
	said := resp.GetMember()
	if said.GetId() != m.ID {
		return nil, errors.New("another member answers in its place")
	}
	said.Name, said.PeerUrl, said.Trouble = m.Name, m.PeerURL, ""
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clientURLs[m.ID] = said.ClientUrls
	return said, nil
}

// known returns where clients reach a member, nil if it was never heard.
func (o *others) known(member uint64) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clientURLs[member]
}

// whyNoAnswer is what people are told.
func whyNoAnswer(err error) string {
	if status.Code(err) == codes.DeadlineExceeded {
		return "no answer"
	}
	return status.Convert(err).Message()
}
