package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

const (
	// askLimit bounds a request for the state of the members.
	askLimit = time.Second
	// askEvery is the pause between two such requests.
	askEvery = 50 * time.Millisecond
)

// member is a member of the cluster.
type member struct {
	name    string
	address string // where clients reach it
	peer    string // where the other members reach it
	child   *child // nil while it does not run
}

// cluster is the members. Only the goroutine of the scenario uses it.
type cluster struct {
	members []*member
	start   func(name string, args ...string) (*child, error) // starts a command of leasekeeper
}

// newCluster returns members with these names, which do not run yet, on free addresses.
func newCluster(start func(name string, args ...string) (*child, error), names ...string) (*cluster, error) {
	addresses, err := freeAddresses(2 * len(names))
	if err != nil {
		return nil, err
	}
	c := &cluster{start: start}
	for i, name := range names {
		c.members = append(c.members, &member{name: name, address: addresses[2*i], peer: addresses[2*i+1]})
	}
	return c, nil
}

// startMember starts a member. It may have run before.
func (c *cluster) startMember(m *member) (err error) {
	var founders []string
	for _, one := range c.members {
		founders = append(founders, one.name+"="+one.peer)
	}
	m.child, err = c.start("member-"+m.name, "serve", "--name", m.name, "--listen", m.address, "--http", "off",
		"--peer-listen", m.peer, "--initial-cluster", strings.Join(founders, ","), "--data-dir", "data-"+m.name, "--min-free-bytes", "0")
	return err
}

// addresses returns the addresses of all members.
func (c *cluster) addresses() (all []string) {
	for _, m := range c.members {
		all = append(all, m.address)
	}
	return all
}

// leader waits until n members serve and one of them leads, and returns it.
func (c *cluster) leader(ctx context.Context, n int) (*member, error) {
	for {
		for _, m := range c.members {
			if m.child == nil {
				continue
			}
			if leader := c.leaderBy(ctx, m, n); leader != nil {
				return leader, nil
			}
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no leader with %d members that serve", context.Cause(ctx), n)
		}
	}
}

// leaderBy asks one member which member leads. It returns nil if that is not known, or if fewer than n members serve.
func (c *cluster) leaderBy(ctx context.Context, m *member, n int) *member {
	asking, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+m.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil
	}
	defer conn.Close()
	answer, err := leasekeeperv1.NewMembersClient(conn).List(asking, &leasekeeperv1.ListMembersRequest{})
	if err != nil {
		return nil
	}
	serving, leader := 0, ""
	for _, one := range answer.Members {
		if one.Trouble != "" || one.NotServing != "" {
			continue
		}
		serving++
		if one.Role == leasekeeperv1.Member_LEADER {
			leader = one.Name
		}
	}
	for _, one := range c.members {
		if serving >= n && one.name == leader && one.child != nil {
			return one
		}
	}
	return nil
}

// freeAddresses returns addresses on which no program listens. Their ports are below the range from which systems assign
// ports to clients and listeners, so they stay free until a member listens.
func freeAddresses(n int) ([]string, error) {
	const first, many, tries = 12_000, 16_000, 200
	var addresses []string
	for range tries {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(many)))
		if err != nil {
			continue // the port is taken
		}
		defer l.Close()
		if addresses = append(addresses, l.Addr().String()); len(addresses) == n {
			return addresses, nil
		}
	}
	return nil, command.Failed("the demo finds no free ports on 127.0.0.1 from %d to %d: stop programs that listen there, or allow this user to listen", first, first+many-1)
}
