package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// agreeLimit bounds how long members take to agree on a leader. agreeAsk bounds how long a member takes to name its
	// leader, and agreeEvery is the pause between two questions.
	agreeLimit = 30 * time.Second
	agreeAsk   = time.Second
	agreeEvery = 20 * time.Millisecond
)

// A seat holds the addresses and the directory that a member is started with.
type seat struct {
	self         int
	dir          string
	client, http string   // its addresses for clients and for operators
	peer         string   // its address for the other members
	fronts       []string // the addresses by which it reaches each member, or links to them
}

// memberNames are the names of the members of a cluster.
var memberNames = []string{"a", "b", "c"}

// initial lists the members as both servers take them.
func initial(addrs []string) string {
	var list []string
	for i, addr := range addrs {
		list = append(list, memberNames[i]+"="+addr)
	}
	return strings.Join(list, ",")
}

// Every member gets the same addresses: both servers make ids of them.
func leasekeeperMember(m seat) []string {
	return append(leasekeeperArguments(m.dir, m.client, m.http),
		"--name", memberNames[m.self], "--initial-cluster", initial(m.fronts),
		"--peer-listen", m.peer, "--peer-advertise", m.fronts[m.self])
}

func etcdMember(m seat) []string {
	client := "http://" + m.client
	var urls []string
	for _, front := range m.fronts {
		urls = append(urls, "http://"+front)
	}
	return []string{
		"--name", memberNames[m.self], "--data-dir", m.dir, "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", urls[m.self],
		"--initial-cluster", initial(urls),
	}
}

// A cluster is a target that runs as several members, or as one alone.
type cluster struct {
	members []*server
	links   []*relay    // to each member, if they delay
	conns   connections // to each member
}

// startCluster runs members on empty directories below parent, with delayed messages between them. It returns once all
// answer and agree on a leader. As with one server, another process may take a port.
func startCluster(ctx context.Context, parent string, t *target, members int, delay time.Duration) (*cluster, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		c, err := startClusterOnce(ctx, parent, t, members, delay)
		if err == nil || attempt == attempts || ctx.Err() != nil {
			return c, err
		}
	}
}

func startClusterOnce(ctx context.Context, parent string, t *target, members int, delay time.Duration) (*cluster, error) {
	c := &cluster{}
	err := c.launch(parent, t, members, delay)
	if err == nil {
		err = c.awaitAll(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", t.name, err), c.stop())
	}
	return c, nil
}

// launch starts the processes. What it has started it leaves to stop even if it fails.
func (c *cluster) launch(parent string, t *target, members int, delay time.Duration) error {
	addrs, err := freeAddrs(3 * members)
	if err != nil {
		return err
	}
	clients, https, peers := addrs[:members], addrs[members:2*members], addrs[2*members:]
	fronts := slices.Clone(peers)
	for i := range fronts {
		if delay == 0 {
			break
		}
		l, err := newLink(peers[i], delay)
		if err != nil {
			return err
		}
		c.links = append(c.links, l)
		fronts[i] = l.addr()
	}
	for i := range members {
		dir, err := os.MkdirTemp(parent, "member-")
		if err != nil {
			return err
		}
		m := seat{i, filepath.Join(dir, "data"), clients[i], https[i], peers[i], fronts}
		s := &server{target: t, dir: dir, addr: m.client, args: t.arguments(m.dir, m.client, m.peer)}
		if members > 1 {
			s.args = t.joined(m)
		}
		if err := s.launch(); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		c.members = append(c.members, s)
		conn, err := dial(s.addr, 1)
		if err != nil {
			return err
		}
		c.conns = append(c.conns, conn...)
	}
	for i, s := range c.members {
		s.fellows = c.others(i)
	}
	return nil
}

// others are all members but one.
func (c *cluster) others(one int) []*server {
	return slices.Delete(slices.Clone(c.members), one, one+1)
}

// awaitAll returns once every member answers, and all agree on a leader.
func (c *cluster) awaitAll(ctx context.Context) error {
	for _, s := range c.members {
		if err := s.awaitReady(ctx, startLimit); err != nil {
			return err
		}
	}
	_, err := c.awaitLeader(ctx)
	return err
}

// awaitLeader returns the member that all follow, once they do.
func (c *cluster) awaitLeader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, agreeLimit)
	defer cancel()
	for {
		answers, err := c.ask(ctx)
		if leader, agreed := leaderOf(answers); err == nil && agreed {
			return leader, nil
		}
		pause(ctx, agreeEvery)
		if ctx.Err() != nil {
			return 0, fmt.Errorf("the members do not agree on a leader: %v: %w", answers, errors.Join(err, ctx.Err()))
		}
	}
}

// ask asks every member for its leader.
func (c *cluster) ask(ctx context.Context) ([]*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, agreeAsk)
	defer cancel()
	answers := make([]*pb.StatusResponse, len(c.members))
	err := spread(ctx, len(answers), len(answers), func(ctx context.Context, _, i int) (err error) {
		answers[i], err = pb.NewMaintenanceClient(c.conns[i]).Status(ctx, &pb.StatusRequest{})
		return err
	})
	return answers, err
}

// leaderOf returns the answering member that all of them follow in the same term.
func leaderOf(answers []*pb.StatusResponse) (leader int, agreed bool) {
	leader = -1
	for i, a := range answers {
		if a == nil || a.Leader == 0 || a.Leader != answers[0].Leader || a.RaftTerm != answers[0].RaftTerm {
			return -1, false
		}
		if a.Header.GetMemberId() == a.Leader {
			leader = i
		}
	}
	return leader, leader >= 0
}

// stop ends all members, and the links between them. A leader takes long to end if no other member can lead next.
func (c *cluster) stop() error {
	c.conns.close()
	var failed []error
	for _, s := range c.members {
		failed = append(failed, s.discard())
	}
	for _, l := range c.links {
		_ = l.close() // an error about a member that was away is expected
	}
	return errors.Join(failed...)
}
