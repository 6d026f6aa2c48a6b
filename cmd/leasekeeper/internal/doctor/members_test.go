package doctor

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// trio returns three healthy members, of which the first leads.
func trio() []*leasekeeperv1.Member {
	all := make([]*leasekeeperv1.Member, 3)
	for i := range all {
		id := uint64(i + 1)
		m := &leasekeeperv1.Member{
			Id: id, Name: string(rune('a' + i)), PeerUrl: "https://10.0.0.7:2380", Version: "v1", Role: leasekeeperv1.Member_FOLLOWER, Leader: 1, Term: 4,
			CommitIndex: 5000, AppliedIndex: 5000, Understands: 5, ClusterVersion: 5, VersionInUse: 2,
		}
		for other := uint64(1); other <= 3; other++ {
			if other != id {
				m.Peers = append(m.Peers, &leasekeeperv1.MemberPeer{Id: other, Connected: true, MeasuredNs: 1, RawPpm: 3, BootPpm: -4})
			}
		}
		all[i] = m
	}
	all[0].Role = leasekeeperv1.Member_LEADER
	return all
}

func TestHealthyClusterHasOnlyGoodChecks(t *testing.T) {
	for _, c := range judgeMembers(trio()) {
		expect(t, c.Name, c, OK)
	}
	for _, c := range judgeMembers(trio()[:1]) {
		expect(t, c.Name, c, OK)
	}
}

func TestEachFaultOfAMemberIsFound(t *testing.T) {
	type members = []*leasekeeperv1.Member
	for _, c := range []struct {
		name   string // of the check that finds it
		change func(m members)
		want   Verdict
	}{
		{"members", func(m members) { m[2] = &leasekeeperv1.Member{Id: 3, Name: "c", Trouble: "no route"} }, Warn},
		{"members", func(m members) { m[1].NotServing, m[2].NotServing = "no leader", "no leader" }, Fail},
		{"members", func(m members) { m[1].Learner, m[1].NotServing = true, "catching up" }, Warn},
		{"leader", func(m members) { m[0].Leader, m[1].Leader, m[2].Leader = 0, 0, 0 }, Fail},
		{"leader", func(m members) { m[1].Leader = 2 }, Warn},
		{"leader", func(m members) { m[0].Leader = 0 }, OK},
		{"program versions", func(m members) { m[1].Version = "v2" }, Warn},
		{"log version", func(m members) { m[0].ClusterVersion, m[1].ClusterVersion, m[2].ClusterVersion = 0, 0, 0 }, Warn},
		{"log version", func(m members) { m[1].Understands = 6 }, Warn},
		{"lag", func(m members) { m[2].AppliedIndex = 4001 }, OK},
		{"lag", func(m members) { m[2].AppliedIndex = 4000 }, Warn},
		{"connections", func(m members) { m[0].Peers[1].Connected = false }, Warn},
		{"clocks of members", func(m members) { m[0].Peers[0].RawPpm = 1000 }, OK},
		{"clocks of members", func(m members) { m[0].Peers[0].RawPpm = -1001 }, Warn},
		{"clocks of members", func(m members) { m[0].Peers[1].BootPpm = 1001 }, Warn},
		{"clocks of members", func(m members) { m[0].Peers[1].ClockSuspect = true }, Fail},
		{"clocks of members", func(m members) {
			for _, one := range m {
				one.Peers[0].MeasuredNs, one.Peers[1].MeasuredNs = 0, 0
			}
		}, NotChecked},
		{"trust in clocks", func(m members) { m[1].ClocksDistrusted = "a promise was broken" }, Fail},
		{"votes", func(m members) { m[2].Learner = true }, Warn},
		{"TLS of members", func(m members) { m[2].PeerUrl = "http://10.0.0.9:2380" }, Warn},
		{"TLS of members", func(m members) {
			for _, one := range m {
				one.PeerUrl = "http://127.0.0.1:2380"
			}
		}, OK},
	} {
		all := trio()
		c.change(all)
		checks := judgeMembers(all)
		i := slices.IndexFunc(checks, func(found Check) bool { return found.Name == c.name })
		if i < 0 {
			t.Errorf("no check %s", c.name)
			continue
		}
		expect(t, c.name, checks[i], c.want)
	}
	four := append(trio(), proto.Clone(trio()[2]).(*leasekeeperv1.Member))
	expect(t, "four members", judgeCount(four), Warn)
}

func TestMemberThatIsDownIsNoCutConnection(t *testing.T) {
	all := trio()
	all[0].Peers[1].Connected, all[1].Peers[1].Connected = false, false
	all[2] = &leasekeeperv1.Member{Id: 3, Name: "c", Trouble: "no route"}
	for _, c := range judgeMembers(all) {
		if c.Name == "connections" {
			expect(t, c.Name, c, OK)
		}
	}
}

func TestRepliesOfEndpointsAreJudged(t *testing.T) {
	answering := reply{endpoint: "a:1", took: time.Millisecond, status: &pb.StatusResponse{}}
	silent := reply{endpoint: "b:1", err: errors.New("refused")}
	locked := reply{endpoint: "c:1", err: status.Error(codes.Unauthenticated, "who are you")}
	for _, c := range []struct {
		replies []reply
		want    Verdict
	}{{[]reply{answering}, OK}, {[]reply{answering, silent}, Warn}, {[]reply{silent}, Fail}, {[]reply{locked}, Fail}} {
		expect(t, fmt.Sprint(len(c.replies), c.want), judgeReplies(c.replies), c.want)
	}
	if one, other := judgeReplies([]reply{silent}), judgeReplies([]reply{locked}); one.Fix[:10] == other.Fix[:10] {
		t.Errorf("the advice is the same: %s", one.Fix)
	}
}

func TestAlarmsAreJudged(t *testing.T) {
	expect(t, "none", judgeAlarms(nil), OK)
	expect(t, "space", judgeAlarms([]string{"memberID:1 alarm:NOSPACE"}), Fail)
	expect(t, "another", judgeAlarms([]string{"memberID:1 alarm:CORRUPT"}), Fail)
}
