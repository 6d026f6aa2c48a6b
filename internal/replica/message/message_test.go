package message

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A message is the same after it was encoded and parsed, whichever parts it has.
func TestMessagesAreParsedAsTheyWereSent(t *testing.T) {
	for name, m := range map[string]Message{
		"empty":    {},
		"renewals": {Renewals: []ForwardedRenewal{{Number: 3, Leases: []lessor.ID{1, 2}}, {Number: 4, Leases: []lessor.ID{3}}}},
		"renewed": {Renewed: []ForwardedRenewed{{Number: 3, Revision: 5, Term: 6, Leases: []RenewedLease{
			{ID: 1, TTL: time.Second}, {ID: 2, Err: lessor.ErrNotFound}, {ID: 3, Err: lessor.ErrRenewalRefused}, {ID: 4, Err: ErrNoLeader},
			{ID: 5, Err: ErrTooManyRequests}, {ID: 6, Err: &ownership.EndedError{Kind: lessor.ErrNotFound, Why: ownership.WhyRevoked, Note: "n"}},
		}}}},
		"space":    {Room: memberpb.Room_ROOM_SHORT, HoldOff: time.Minute, Level: 3},
		"standing": {Standing: &Standing{Known: 7, Data: true, Founding: true, Ask: true}},
	} {
		m.From, m.To = 1, 2
		got, err := Parse(1, 2, m.AppendTo(nil))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, m)
		}
	}
}

// An error without a number arrives as the mildest reason.
func TestUnknownRefusalsArriveAsNoLeader(t *testing.T) {
	m := Message{From: 1, To: 2, Renewed: []ForwardedRenewed{{Leases: []RenewedLease{{ID: 1, TTL: time.Second, Err: errors.New("other")}}}}}
	got, err := Parse(1, 2, m.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if lease := got.Renewed[0].Leases[0]; lease.Err != ErrNoLeader || lease.TTL != 0 {
		t.Errorf("%+v", lease)
	}
}

// The connection says which member sent a message. A message of raft that says otherwise is refused, like other bytes.
func TestMalformedMessagesAreRefused(t *testing.T) {
	m := Message{Raft: &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(3)}}
	text := m.AppendTo(nil)
	raft, err := proto.Marshal(m.Raft)
	if err != nil {
		t.Fatal(err)
	}
	garbage, err := proto.Marshal(&memberpb.Message{Raft: append(raft, 0xff)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(1, 2, text); err != nil || !proto.Equal(got.Raft, m.Raft) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		from, to uint64
		text     []byte
	}{"another sender": {3, 2, text}, "another receiver": {1, 3, text}, "half of it": {1, 2, text[:len(text)/2]}, "garbage behind raft's part": {1, 2, garbage}} {
		if _, err := Parse(c.from, c.to, c.text); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
