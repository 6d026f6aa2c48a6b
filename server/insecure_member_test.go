package server

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// No member is reached without TLS over the network while access is enabled: neither is access enabled in such a cluster, nor
// does a member get such a URL. The refusal names the member, through the leader and through a follower.
func TestAccessAndMembersWithoutTLSExcludeEachOther(t *testing.T) {
	tr := startTrio(t, waitLimit)
	leader, follower := tr.leader()
	refused := func(err error, url string) {
		t.Helper()
		wantCode(t, err, codes.FailedPrecondition)
		if text := status.Convert(err).Message(); !strings.Contains(text, url) || !strings.Contains(text, "without TLS") {
			t.Errorf("the refusal is %q", text)
		}
	}
	follower.addUsers() // enables access
	_, err := follower.auth.AuthDisable(follower.as("root"), &pb.AuthDisableRequest{})
	wantOK(t, err)
	const plain, secure = "http://192.0.2.1:2380", "https://192.0.2.1:2380"
	added, err := leader.cluster.MemberAdd(leader.ctx(), &pb.MemberAddRequest{PeerURLs: []string{plain}, IsLearner: true})
	wantOK(t, err)
	for _, c := range []*front{leader.front, follower.front} {
		_, err = c.auth.AuthEnable(c.ctx(), &pb.AuthEnableRequest{})
		refused(err, plain)
	}
	_, err = leader.cluster.MemberUpdate(leader.ctx(), &pb.MemberUpdateRequest{ID: added.Member.ID, PeerURLs: []string{secure}})
	wantOK(t, err)
	_, err = follower.auth.AuthEnable(follower.ctx(), &pb.AuthEnableRequest{})
	wantOK(t, err)
	for _, c := range []*front{leader.front, follower.front} {
		_, err = c.cluster.MemberUpdate(c.as("root"), &pb.MemberUpdateRequest{ID: added.Member.ID, PeerURLs: []string{plain}})
		refused(err, plain)
		_, err = c.cluster.MemberAdd(c.as("root"), &pb.MemberAddRequest{PeerURLs: []string{"http://host:2380"}})
		refused(err, "http://host:2380")
	}
	_, err = follower.cluster.MemberRemove(follower.as("root"), &pb.MemberRemoveRequest{ID: added.Member.ID})
	wantOK(t, err)
}
