package server

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
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

// outward is a listener whose address says that other machines reach it.
type outward struct{ net.Listener }

func (l outward) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4zero, Port: l.Listener.Addr().(*net.TCPAddr).Port}
}

// turning is a listener whose address says from some moment on that other machines reach it.
type turning struct {
	net.Listener
	outward *atomic.Bool
}

func (l turning) Addr() net.Addr {
	if l.outward.Load() {
		return outward{l.Listener}.Addr()
	}
	return l.Listener.Addr()
}

// A member ends when it learns that access is enabled while other machines can act as members. Its log may say so only after
// it has started.
func TestMemberWithUsersEndsWhereOtherMachinesCanActAsMembers(t *testing.T) {
	var open atomic.Bool
	tr := startEachOfTrio(t, waitLimit, func(_ *Config, _ *node.ClusterConfig, peers *peer.Config) {
		peers.Listener = turning{peers.Listener, &open}
	})
	leader, _ := tr.leader()
	_, err := leader.auth.UserAdd(leader.ctx(), &pb.AuthUserAddRequest{Name: "root", Password: "root"})
	wantOK(t, err)
	_, err = leader.auth.UserGrantRole(leader.ctx(), &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	wantOK(t, err)
	_, err = leader.auth.AuthEnable(leader.ctx(), &pb.AuthEnableRequest{})
	wantOK(t, err)
	open.Store(true)
	for _, m := range tr.members {
		select {
		case <-m.server.Done():
		case <-time.After(waitLimit):
			t.Fatal("a member goes on")
		}
		if err := m.server.Err(); !errors.Is(err, guard.ErrExposed) {
			t.Errorf("a member has ended because of %v", err)
		}
	}
}

// Access is enabled through a member whose port for members other machines reach only if members have certificates there.
func TestAccessIsNotEnabledWhereOtherMachinesCanActAsMembers(t *testing.T) {
	ca := authority.New(t, "members")
	for what, c := range map[string]struct{ outward, certificates, refused bool }{
		"this machine only":              {false, false, false},
		"other machines":                 {true, false, true},
		"other machines, certificates":   {true, true, false},
		"this machine with certificates": {false, true, false},
	} {
		t.Run(what, func(t *testing.T) {
			tr := startEachOfTrio(t, waitLimit, func(_ *Config, _ *node.ClusterConfig, peers *peer.Config) {
				if c.outward {
					peers.Listener = outward{peers.Listener}
				}
				if c.certificates {
					own := secured(t, ca, ca)
					peers.Files = peer.CertificateFiles{Cert: own.CertFile, Key: own.KeyFile, CA: own.ClientCAFile}
				}
			})
			leader, follower := tr.leader()
			_, err := follower.auth.UserAdd(follower.ctx(), &pb.AuthUserAddRequest{Name: "root", Password: "root"})
			wantOK(t, err)
			_, err = follower.auth.UserGrantRole(follower.ctx(), &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
			wantOK(t, err)
			for _, m := range []*trioMember{leader, follower} {
				ctx := m.ctx()
				if c.refused {
					_, err = m.auth.AuthEnable(ctx, &pb.AuthEnableRequest{})
					wantStatus(t, err, status.Error(codes.FailedPrecondition, "etcdserver: "+etcdapi.ErrUnsafePeers.Error()))
				} else {
					_, err = m.auth.AuthEnable(ctx, &pb.AuthEnableRequest{})
					wantOK(t, err)
					ctx = m.as("root")
				}
				got, err := m.auth.AuthStatus(ctx, &pb.AuthStatusRequest{})
				wantOK(t, err)
				wantEqual(t, "access is enabled", got.Enabled, !c.refused)
				if !c.refused {
					_, err = m.auth.AuthDisable(ctx, &pb.AuthDisableRequest{})
					wantOK(t, err)
				}
			}
		})
	}
}
