package masterlease_test

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// A cluster of one leader and two other members. Comments say what raft does.
func Example() {
	clocks := clock.NewManual(clock.Instant{}) // each machine has its own clocks; here all share one pair
	leader, _ := masterlease.NewHolder(masterlease.HolderConfig{ID: 1})
	leader.Configure(masterlease.Configuration{Voters: []uint64{1, 2, 3}}, clocks.Now())
	follower, _ := masterlease.NewGrantor(masterlease.GrantorConfig{}, masterlease.Past{Bootstrap: true}, clocks.Now())
	if longest, needed := follower.ToPersist(); needed {
		fmt.Println("must be persisted without a request:", longest)
	}

	// Member 1 has won the election of term 5, and its first entry is applied.
	leader.Observe(masterlease.State{Term: 5, Leader: 1, Role: masterlease.Leader}, clocks.Now())
	leader.Applied(5, clocks.Now())

	for range 2 {
		// The leader sends a heartbeat with a request.
		request, _ := leader.Request(clocks.Now())
		wire := masterlease.Header{Request: &request}.AppendTo(nil)

		// Member 2 gives the heartbeat to raft, and then the request to its grantor.
		clocks.Advance(3 * time.Millisecond)
		header, _ := masterlease.ParseHeader(wire)
		state := masterlease.State{Term: 5, Leader: 1, Role: masterlease.Follower}
		fmt.Println("follower:", follower.Hear(masterlease.Heard{From: 1, Term: 5, Request: *header.Request}, state, clocks.Now()))
		if longest, needed := follower.ToPersist(); needed {
			fmt.Println("follower persists", longest) // and syncs the disk
			follower.Persisted(longest)
		}

		// Its answer carries the grant.
		if grant, ok := follower.Grant(1, 5, clocks.Now()); ok {
			clocks.Advance(3 * time.Millisecond)
			leader.Receive(2, grant, clocks.Now())
		}
	}
	fmt.Println("leader has authority for", clocks.Now().Remaining(leader.Authority().End))
	fmt.Println("follower:", follower.Campaign(clocks.Now()))
	// Output:
	// follower: unpersisted
	// follower persists 909ms
	// follower: promised
	// leader has authority for 884ms
	// follower: masterlease: this member has promised leader 1 not to elect another: wait 906.000001ms, or hand over from that leader
}

// A read is answered only if the authority still held after it.
func ExampleHolder_Check() {
	clocks := clock.NewManual(clock.Instant{})
	h, _ := masterlease.NewHolder(masterlease.HolderConfig{ID: 1})
	h.Configure(masterlease.Configuration{Voters: []uint64{1}}, clocks.Now()) // a single voter
	h.Observe(masterlease.State{Term: 2, Leader: 1, Role: masterlease.Leader}, clocks.Now())

	read := func() {
		term := h.Authority().Term
		// Here the state is read.
		if h.Check(term, clocks.Now()) {
			fmt.Println("answer with authority")
		} else {
			fmt.Println("confirm with a quorum first")
		}
	}
	read()
	h.Applied(2, clocks.Now()) // the first entry of its own term
	read()
	// Output:
	// confirm with a quorum first
	// answer with authority
}

// A planned handover waits for no promise.
func ExampleGrantor_TimeoutNow() {
	clocks := clock.NewManual(clock.Instant{})
	old, _ := masterlease.NewHolder(masterlease.HolderConfig{ID: 1})
	old.Configure(masterlease.Configuration{Voters: []uint64{1, 2, 3}}, clocks.Now())
	target, _ := masterlease.NewGrantor(masterlease.GrantorConfig{}, masterlease.Past{Bootstrap: true}, clocks.Now())
	target.Persisted(time.Second) // this length is on stable storage

	leads := masterlease.State{Term: 5, Leader: 1, Role: masterlease.Leader}
	old.Observe(leads, clocks.Now())
	request, _ := old.Request(clocks.Now())
	target.Hear(masterlease.Heard{From: 1, Term: 5, Request: request}, masterlease.State{Term: 5, Leader: 1}, clocks.Now())
	fmt.Println("may campaign:", target.Open(clocks.Now()))

	leads.Transferee = 2 // raft was asked to hand over to member 2
	release, _ := old.Observe(leads, clocks.Now())
	fmt.Println("may campaign with the release:", target.TimeoutNow(&release, clocks.Now()))
	// Output:
	// may campaign: false
	// may campaign with the release: true
}
