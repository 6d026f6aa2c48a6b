package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/statexfer"
)

// snapped waits until a node has installed the leader's state and has caught up with it.
func snapped(t *testing.T, leader, n *Node) {
	t.Helper()
	ctx := context.Background()
	want := leader.Header().Revision
	for n.Header().Revision < want { // reads from the leader: once answered, the node's state is as new
		if _, err := n.readHeader(ctx, false); err != nil && !errors.Is(err, replica.ErrNoLeader) {
			t.Fatal(err)
		}
	}
}

// A node that was unreachable for long installs the leader's state. Its watchers of keys then receive each change
// once; its watchers of names learn that they missed some.
func TestLaggingMemberInstallsLeaderState(t *testing.T) {
	q := newQuorumOf(t, 8)
	ctx := context.Background()
	leader, laggard := q.leader()
	mustPut(t, leader, "k", "0", 0)
	if kvs := get(t, laggard, "k"); len(kvs) != 1 {
		t.Fatalf("the follower reads %v", kvs)
	}
	watch := laggard.NewWatchStream(keyspace.StreamLimits{})
	defer watch.Close()
	if _, err := watch.Watch(keyspace.WatchRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Next(ctx); err != nil || !r.Created {
		t.Fatalf("created: %+v, %v", r, err)
	}
	names := laggard.WatchNames("")
	defer names.Close()

	q.s.cutOff(laggard.identity.MemberID)
	const changes = 200 // more than the log keeps for a follower
	for i := range changes {
		mustPut(t, leader, "k", fmt.Sprint(i+1), 0)
	}
	q.s.cutOff(0)
	snapped(t, leader, laggard)
	if _, missed, err := names.Next(ctx); err != nil || !missed {
		t.Errorf("the watcher of names received nothing: %v", err)
	}
	for reported := 0; reported < changes; {
		r, err := watch.Next(ctx)
		if err != nil || r.Canceled {
			t.Fatalf("watch: %+v, %v", r, err)
		}
		for _, e := range r.Events {
			if reported++; string(e.KV.Value) != fmt.Sprint(reported) {
				t.Fatalf("event %d is %s", reported, e.KV.Value)
			}
		}
	}
	if kvs := get(t, laggard, "k"); len(kvs) != 1 || string(kvs[0].Value) != fmt.Sprint(changes) {
		t.Errorf("it reads %v", kvs)
	}
	left, err := vfs.Default.List(q.dirs[laggard.identity.MemberID])
	if err != nil || strings.Contains(strings.Join(left, " "), datadir.StagedPrefix) {
		t.Errorf("in its directory: %v, %v", left, err)
	}

	// The node keeps the installed state across a restart.
	id := laggard.identity.MemberID
	q.stop(id)
	laggard = q.start(id)
	leader, _ = q.leader()
	mustPut(t, leader, "k", "last", 0)
	if kvs := get(t, laggard, "k"); len(kvs) != 1 || string(kvs[0].Value) != "last" {
		t.Errorf("after a restart it reads %v", kvs)
	}
}

// received returns a state at entry 50 of term 3, as its sender would send it to a node.
func received(t *testing.T, by uint64, to *Node, index uint64) (message, state []byte) {
	m := replica.Message{Raft: &raftpb.Message{Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(index), Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}},
	}}}}
	m.Raft.Type, m.Raft.From, m.Raft.To = raftpb.MsgSnap.Enum(), new(by), new(to.identity.MemberID)
	m.Raft.Term = new(uint64(3))
	return m.AppendTo(nil), stateAt(t, 50)
}

const stateCluster = 0xc1

// stateAt returns the state of a member of cluster stateCluster after entry index of term 3, as it is sent.
func stateAt(t *testing.T, index uint64) []byte {
	t.Helper()
	db, err := datadir.OpenDatabase("db", datadir.DatabaseOptions(vfs.NewMem(), nil))
	if err != nil {
		t.Fatal(err)
	}
	batch := db.NewBatch()
	for key, m := range map[string]proto.Message{
		"ri": &logpb.Identity{Format: record.Format, ClusterId: stateCluster, MemberId: 11, Incarnation: 1},
		"ra": &logpb.Applied{Index: index, Term: 3},
	} {
		value, err := proto.Marshal(m)
		if err = errors.Join(err, batch.Set([]byte(key), value, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(batch.Set([]byte("v1"), nil, nil), batch.Commit(pebble.Sync)); err != nil {
		t.Fatal(err)
	}
	var state bytes.Buffer
	snapshot := db.NewSnapshot()
	if err := errors.Join(statexfer.Write(&state, snapshot), snapshot.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return state.Bytes()
}

// A state is refused if it is no snapshot, does not match its message, or arrives during another. Nothing of it
// remains on the disk.
func TestInvalidStateIsRefused(t *testing.T) {
	q := newQuorum(t)
	leader, n := q.leader()
	from, dir := leader.identity.MemberID, q.dirs[n.identity.MemberID]
	ctx := context.Background()
	message, state := received(t, from, n, 50)
	other, _ := received(t, from, n, 51)
	refused := func(what string, err error, text string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
		left, err := vfs.Default.List(dir)
		if err != nil || strings.Contains(strings.Join(left, " "), datadir.StagedPrefix) {
			t.Errorf("%s: in the directory there are %v, %v", what, left, err)
		}
	}
	heartbeat := replica.Message{Raft: &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(from), To: new(n.identity.MemberID)}}
	refused("no message", n.ReceiveState(ctx, from, 1, []byte("no"), bytes.NewReader(state)), "malformed message")
	refused("no snapshot", n.ReceiveState(ctx, from, 1, heartbeat.AppendTo(nil), bytes.NewReader(state)), "no snapshot")
	refused("another snapshot", n.ReceiveState(ctx, from, 1, other, bytes.NewReader(state)), "its message speaks of entry 51")
	refused("half of it", n.ReceiveState(ctx, from, 1, message, bytes.NewReader(state[:len(state)/2])), "not complete")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	refused("an ended context", n.ReceiveState(ended, from, 1, message, bytes.NewReader(state)), "canceled")
	if !n.states.receive() {
		t.Fatal("it is still receiving")
	}
	refused("a second one", n.ReceiveState(ctx, from, 1, message, bytes.NewReader(state)), errReceiving.Error())
	n.states.received()
	// A state from a rejected peer is received, and then discarded unread.
	if err := n.ReceiveState(ctx, from, 0xbad, message, bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	status, err := n.Cluster(ctx) // answered after the member has handled the state
	if err != nil || status.Counts.RejectedPeers == 0 {
		t.Errorf("%+v, %v", status.Counts, err)
	}
	refused("a rejected peer's", errors.New("-"), "-")
}

// Start removes the parts of a received state that a crash left.
func TestStartRemovesLeftoverStates(t *testing.T) {
	dir := t.TempDir()
	startNodeOnce := func() {
		n, err := Start(context.Background(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	startNodeOnce()
	to := statexfer.Receipt{ClusterID: stateCluster, Now: clock.Now}
	if _, err := statexfer.Stage(context.Background(), vfs.Default, dir, 1, bytes.NewReader(stateAt(t, 50)), to); err != nil {
		t.Fatal(err)
	}
	if len(leftoversIn(t, dir)) != 1 {
		t.Fatal("there is no leftover")
	}
	startNodeOnce()
	if left := leftoversIn(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func leftoversIn(t *testing.T, dir string) (left []string) {
	names, err := vfs.Default.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, datadir.StagedPrefix) {
			left = append(left, name)
		}
	}
	return left
}
