package webconsole

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// serverStore is a store in memory that says it is a server.
type serverStore struct {
	*memory.Backend
	mu      sync.Mutex
	members []*leasekeeperv1.Member
	records []*leasekeeperv1.AuditRecord
	keys    map[string][]string // by name
	err     error
	asked   int    // requests for members
	before  func() // called before each answer about members; nil for nothing
}

func (s *serverStore) Members(context.Context) ([]*leasekeeperv1.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.before != nil {
		s.before()
	}
	return s.members, s.err
}

func (s *serverStore) AuditLog(_ context.Context, r *leasekeeperv1.AuditRequest) (*leasekeeperv1.AuditResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	resp := &leasekeeperv1.AuditResponse{Recording: len(s.records) > 0, After: r.After}
	for _, record := range s.records {
		if record.Sequence > r.After && len(resp.Records) < 2 {
			resp.Records, resp.After = append(resp.Records, record), record.Sequence
		}
	}
	resp.More = len(s.records) > 0 && resp.After < s.records[len(s.records)-1].Sequence
	return resp, nil
}

func (s *serverStore) AttachedKeys(_ context.Context, name string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[name], s.err
}

// set changes the store.
func (s *serverStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// visitServer runs a test with a console on a server of three members, of which c is down.
func visitServer(t *testing.T, test func(s *site, store *serverStore)) {
	store := &serverStore{members: []*leasekeeperv1.Member{
		{
			Id: 1, Name: "a", Role: leasekeeperv1.Member_LEADER, Leader: 1, Term: 7, CommitIndex: 20, AppliedIndex: 20, Version: "1.2.3",
			DataBytes: 3 << 20, FreeBytes: 5 << 30, Shortage: "its disk is full", MasterLeaseNs: int64(900 * time.Millisecond), PromiseNs: int64(time.Second),
			Peers: []*leasekeeperv1.MemberPeer{{Id: 2, Connected: true, RawPpm: 12, BootPpm: 12, MeasuredNs: 1}, {Id: 3}},
		},
		{Id: 2, Name: "b", Role: leasekeeperv1.Member_FOLLOWER, Leader: 1, Term: 7, CommitIndex: 20, AppliedIndex: 15, PromiseNs: int64(time.Second)},
		{Id: 3, Name: "c", Trouble: "it does not answer"},
	}}
	visit(t, func(c *Config) {
		store.Backend = c.Store.(*memory.Backend)
		c.Store = store
	}, func(s *site) { test(s, store) })
}

func TestClusterPageShowsMembers(t *testing.T) {
	visitServer(t, func(s *site, store *serverStore) {
		page := s.get("/cluster")
		for _, want := range []string{"0000000000000001", "leader", "5 entries", "&#43;12 ppm", "c is down: it does not answer", "2 of 3", "1.2.3", "3.0 MiB of data, 5.0 GiB free on the disk", "a takes no more data: its disk is full"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		// Only a leader has a master lease. Members that answer have promised it.
		for cell, runs := range map[string]bool{"1.lease": true, "1.promise": true, "2.lease": false, "2.promise": true, "3.promise": false} {
			if key := `data-k="member.000000000000000` + cell + `"`; !strings.Contains(page, key) || strings.Contains(page, key+" data-left=") != runs {
				t.Errorf("%s runs down: %v\n%s", cell, !runs, page)
			}
		}
		var data clusterJSON
		s.read("/cluster?format=json", &data)
		if data.Leader != "0000000000000001" || len(data.Members) != 3 || len(data.Alarms) != 2 || data.Error != "" {
			t.Errorf("the JSON is %+v", data)
		}
		store.set(func() { store.err = errors.New("no answer") })
		time.Sleep(interestLasts)
		s.read("/cluster?format=json", &data)
		if data.Error != "no answer" {
			t.Errorf("after a failure the JSON is %+v", data)
		}
	})
}

func TestOverviewShowsLeaderAndAlarms(t *testing.T) {
	visitServer(t, func(s *site, store *serverStore) {
		page := s.get("/")
		for _, want := range []string{`data-k="cluster.leader"`, `data-k="cluster.lease" data-left=`, "c is down", `href="audit"`} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		p := s.open("/")
		p.news()
		store.set(func() {
			store.members[0].Role, store.members[0].MasterLeaseNs = leasekeeperv1.Member_FOLLOWER, 0
		})
		time.Sleep(2 * roundInterval)
		if alarms := p.news()["cluster.alarms"].Text; !strings.Contains(alarms, "no member that answers leads") {
			t.Errorf("without a leader the alarms are %q", alarms)
		}
	})
}

func TestNamePageShowsAttachedKeys(t *testing.T) {
	visitServer(t, func(s *site, store *serverStore) {
		s.claim("a", "me")
		many := []string{"a/<1>"}
		for i := range mostKeys {
			many = append(many, fmt.Sprintf("key %d", i))
		}
		store.set(func() { store.keys = map[string][]string{"a": many} })
		page := s.get(nameAddress("a"))
		for _, want := range []string{"a/&lt;1&gt;", "key 1", "… and 1 more"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		var data oneNameJSON
		s.read(nameAddress("a")+"&format=json", &data)
		if len(data.AttachedKeys) != len(many) {
			t.Errorf("the JSON has the keys %q", data.AttachedKeys)
		}
	})
}

// The members are asked only while a page shows them.
func TestMembersAreReadOnDemand(t *testing.T) {
	visitServer(t, func(s *site, store *serverStore) {
		p := s.open("/names")
		time.Sleep(10 * roundInterval)
		synctest.Wait()
		store.set(func() {
			if store.asked != 0 {
				t.Errorf("the members were asked %d times without a page", store.asked)
			}
		})
		p.close()
	})
}

func TestAuditPageShowsTheNewestRecordsFirst(t *testing.T) {
	visitServer(t, func(s *site, store *serverStore) {
		if page := s.get("/audit"); !strings.Contains(page, "The audit log has not begun") {
			t.Errorf("before the first record:\n%s", page)
		}
		store.set(func() {
			for i := range 5 {
				store.records = append(store.records, &leasekeeperv1.AuditRecord{
					Sequence: uint64(i + 1), User: "root", Act: "name.revoke", Object: fmt.Sprintf("n%d", i+1), Reason: "it <hangs>",
					Address: "192.0.2.1", Time: timestamppb.New(time.Unix(int64(i), 0)),
				})
			}
		})
		time.Sleep(interestLasts)
		var data auditJSON
		s.read("/audit?format=json", &data)
		if !data.Recording || data.Total != 5 || data.Records[0].Sequence != 5 {
			t.Errorf("the JSON is %+v", data)
		}
		s.read("/audit?format=json&q=n2", &data)
		if data.Total != 1 || data.Records[0].Object != "n2" {
			t.Errorf("filtered it is %+v", data)
		}
		page := s.get("/audit")
		for _, want := range []string{`href="name?name=n5"`, "it &lt;hangs&gt;", "1970-01-01 00:00:04", "192.0.2.1"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		store.set(func() { store.err = backend.ErrDenied })
		time.Sleep(interestLasts)
		if page := s.get("/audit"); !strings.Contains(page, "needs a user with the role root") {
			t.Errorf("denied:\n%s", page)
		}
	})
}

// A store that is no server has neither page in its navigation, and the pages say why.
func TestOtherStoresHaveNoClusterPages(t *testing.T) {
	visit(t, nil, func(s *site) {
		if page := s.get("/"); strings.Contains(page, `href="cluster"`) || strings.Contains(page, `href="audit"`) {
			t.Errorf("the navigation has pages of a server:\n%s", page)
		}
		for _, path := range []string{"/cluster", "/audit"} {
			if page := s.get(path); !strings.Contains(page, "no Leasekeeper server") {
				t.Errorf("%s:\n%s", path, page)
			}
		}
	})
}
