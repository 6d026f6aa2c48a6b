package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestLeaderThatAllMembersAgreeOn(t *testing.T) {
	says := func(member, leader, term uint64) *pb.StatusResponse {
		return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: member}, Leader: leader, RaftTerm: term}
	}
	for name, test := range map[string]struct {
		answers []*pb.StatusResponse
		leader  int
		agreed  bool
	}{
		"all follow the second":     {[]*pb.StatusResponse{says(1, 2, 7), says(2, 2, 7), says(3, 2, 7)}, 1, true},
		"all follow the last":       {[]*pb.StatusResponse{says(9, 3, 1), says(8, 3, 1), says(3, 3, 1)}, 2, true},
		"one alone":                 {[]*pb.StatusResponse{says(5, 5, 1)}, 0, true},
		"one does not answer":       {[]*pb.StatusResponse{says(1, 2, 7), says(2, 2, 7), nil}, -1, false},
		"nobody answers":            {[]*pb.StatusResponse{nil, nil, nil}, -1, false},
		"nobody leads":              {[]*pb.StatusResponse{says(1, 0, 7), says(2, 0, 7), says(3, 0, 7)}, -1, false},
		"nobody says who leads":     {[]*pb.StatusResponse{says(0, 0, 0), says(0, 0, 0), says(0, 0, 0)}, -1, false},
		"one knows no leader":       {[]*pb.StatusResponse{says(1, 2, 7), says(2, 2, 7), says(3, 0, 7)}, -1, false},
		"two lead":                  {[]*pb.StatusResponse{says(1, 1, 6), says(2, 2, 7), says(3, 2, 7)}, -1, false},
		"one is a term behind":      {[]*pb.StatusResponse{says(1, 2, 7), says(2, 2, 8), says(3, 2, 8)}, -1, false},
		"they follow somebody else": {[]*pb.StatusResponse{says(1, 4, 7), says(2, 4, 7), says(3, 4, 7)}, -1, false},
	} {
		if leader, agreed := leaderOf(test.answers); agreed != test.agreed || agreed && leader != test.leader {
			t.Errorf("%s: %d, %v; want %d, %v", name, leader, agreed, test.leader, test.agreed)
		}
	}
}

func TestPercentilesBecomeFigures(t *testing.T) {
	var took []time.Duration
	for i := 20; i > 0; i-- {
		took = append(took, time.Duration(i)*time.Second)
	}
	got, err := distribution("first, ", took, []float64{50, 95, 100}, "900", "1 500")
	want := []figure{
		{"first, p50", "ms", 10_000, "900"}, {"first, p95", "ms", 19_000, "1 500"}, {"first, max", "ms", 20_000, ""},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: %v", got, want, err)
	}
	if _, err := distribution("", nil, []float64{50}); !errors.Is(err, errNothing) {
		t.Errorf("no durations have a distribution: %v", err)
	}
}

// TestFiguresOfKilledLeaders has two kills, and two leases at each.
func TestFiguresOfKilledLeaders(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	held := func(sent, gone int) holding { return holding{sent: at(sent), ttl: time.Second, gone: at(gone)} }
	got, err := failoverFigures([]failover{
		{at(2000), at(2800), []holding{held(1100, 2900), held(1500, 2910)}},
		{at(9000), at(9500), []holding{held(8100, 9700), held(8900, 9905)}},
	})
	want := []float64{500, 800, 800, 410, 800, 800, 100}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v: %v", got, err)
	}
	for i, f := range got {
		if f.value != want[i] {
			t.Errorf("%s is %v, want %v", f.name, f.value, want[i])
		}
	}
}

// TestMembersListenBehindTheirLinks has members whose links differ from where they listen.
func TestMembersListenBehindTheirLinks(t *testing.T) {
	m := seat{1, "/dir", "client", "http", "own", []string{"to-a", "to-b", "to-c"}}
	after := func(args []string, flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	ours, theirs := leasekeeperMember(m), etcdMember(m)
	for _, test := range []struct{ got, want string }{
		{after(ours, "--name"), "b"},
		{after(ours, "--initial-cluster"), "a=to-a,b=to-b,c=to-c"},
		{after(ours, "--peer-listen"), "own"},
		{after(ours, "--peer-advertise"), "to-b"},
		{after(theirs, "--name"), "b"},
		{after(theirs, "--initial-cluster"), "a=http://to-a,b=http://to-b,c=http://to-c"},
		{after(theirs, "--initial-advertise-peer-urls"), "http://to-b"},
		{after(theirs, "--listen-peer-urls"), "http://own"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
