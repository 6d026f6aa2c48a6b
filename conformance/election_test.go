package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// observed is the next value that an observer receives.
func observed(t *testing.T, ch <-chan *clientv3.GetResponse) string {
	t.Helper()
	select {
	case resp, ok := <-ch:
		if !ok {
			t.Fatal("observing has ended")
		}
		return string(resp.Kvs[0].Value)
	case <-time.After(waitLimit):
		t.Fatalf("nothing observed within %v", waitLimit)
	}
	return ""
}

func TestElectionFromCampaignToResignation(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		session := s.session(60)
		e := concurrency.NewElection(session, "office")
		_, err := e.Leader(s.context())
		wantIs(t, "before", err, concurrency.ErrElectionNoLeader)
		wantIs(t, "proclaim without office", e.Proclaim(s.context(), "x"), concurrency.ErrElectionNotLeader)
		wantOK(t, "resign without office", e.Resign(s.context()))

		wantOK(t, "campaign", e.Campaign(s.context(), "one"))
		wantEqual(t, "key", e.Key(), fmt.Sprintf("office/%x", int64(session.Lease())))
		wantEqual(t, "revision", e.Rev(), 2)
		wantEqual(t, "header", e.Header().Revision, 2)
		leader, err := e.Leader(s.context())
		wantOK(t, "leader", err)
		wantEqual(t, "leader", show(leader.Kvs...), fmt.Sprintf("%s=one c2 m2 v1 lease %x", e.Key(), int64(session.Lease())))

		wantOK(t, "proclaim", e.Proclaim(s.context(), "two"))
		wantOK(t, "campaign by the one in office proclaims", e.Campaign(s.context(), "three"))
		leader, err = concurrency.NewElection(s.session(60), "office").Leader(s.context())
		wantOK(t, "leader", err)
		wantEqual(t, "as others see it", show(leader.Kvs...), fmt.Sprintf("%s=three c2 m4 v3 lease %x", e.Key(), int64(session.Lease())))

		wantOK(t, "resign", e.Resign(s.context()))
		_, err = e.Leader(s.context())
		wantIs(t, "afterwards", err, concurrency.ErrElectionNoLeader)
		wantEqual(t, "left over", st.members("office"), 0)
		wantEqual(t, "revision", st.revision(), 5)
	})
}

func TestElectionHandsOverInOrder(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		const n = 4
		var elections []*concurrency.Election
		var sessions []*concurrency.Session
		var won []<-chan error
		for i := range n {
			sessions = append(sessions, s.session(60))
			e := concurrency.NewElection(sessions[i], "office")
			elections = append(elections, e)
			won = append(won, begin(func() error { return e.Campaign(s.context(), fmt.Sprint(i)) }))
			st.awaitMembers("office", i+1)
		}
		observer := concurrency.NewElection(s.session(60), "office")
		ctx, cancel := context.WithCancel(s.context())
		defer cancel()
		seen := observer.Observe(ctx)
		for i := range n {
			wantOK(t, "campaign", due(t, "campaign", waitLimit, won[i]))
			wantEqual(t, "observed", observed(t, seen), fmt.Sprint(i))
			leader, err := observer.Leader(s.context())
			wantOK(t, "leader", err)
			wantEqual(t, "leader", string(leader.Kvs[0].Value), fmt.Sprint(i))
			if i%2 == 0 {
				wantOK(t, "resign", elections[i].Resign(s.context()))
			} else {
				wantOK(t, "leaving with the session", sessions[i].Close())
			}
		}
		wantEqual(t, "left over", st.members("office"), 0)
	})
}

func TestElectionObserve(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(s.context())
		seen := concurrency.NewElection(s.session(60), "office").Observe(ctx)
		e := concurrency.NewElection(s.session(60), "office")
		wantOK(t, "campaign", e.Campaign(s.context(), "one"))
		wantEqual(t, "observed", observed(t, seen), "one")
		for _, v := range []string{"two", "three", "four"} {
			wantOK(t, "proclaim", e.Proclaim(s.context(), v))
			wantEqual(t, "observed", observed(t, seen), v)
		}
		wantOK(t, "resign", e.Resign(s.context()))
		next := concurrency.NewElection(s.session(60), "office")
		wantOK(t, "campaign", next.Campaign(s.context(), "five"))
		wantEqual(t, "observed", observed(t, seen), "five")
		cancel()
		select {
		case _, open := <-seen:
			wantEqual(t, "still observing", open, false)
		case <-time.After(waitLimit):
			t.Errorf("still observing after %v", waitLimit)
		}
	})
}

func TestElectionLosesOfficeWithItsLease(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		session := s.session(2)
		e := concurrency.NewElection(session, "office")
		wantOK(t, "campaign", e.Campaign(s.context(), "one"))
		next := concurrency.NewElection(s.session(60), "office")
		won := begin(func() error { return next.Campaign(s.context(), "two") })
		st.awaitMembers("office", 2)
		session.Orphan()
		wantOK(t, "next", due(t, "campaign", 2*time.Second+lateness+waitLimit, won))
		wantIs(t, "the one who was", e.Proclaim(s.context(), "x"), concurrency.ErrElectionNotLeader)
		leader, err := next.Leader(s.context())
		wantOK(t, "leader", err)
		wantEqual(t, "leader", string(leader.Kvs[0].Value), "two")
	})
}

func TestElectionCandidatesThatGiveUp(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		e := concurrency.NewElection(s.session(60), "office")
		wantOK(t, "campaign", e.Campaign(s.context(), "one"))
		ctx, cancel := context.WithCancel(s.context())
		other := concurrency.NewElection(s.session(60), "office")
		won := begin(func() error { return other.Campaign(ctx, "two") })
		st.awaitWaiting("office", 2)
		cancel()
		wantIs(t, "given up", due(t, "campaign", waitLimit, won), context.Canceled)
		st.awaitMembers("office", 1)
	})
}

func TestElectionIsResumed(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		session := s.session(60)
		e := concurrency.NewElection(session, "office")
		wantOK(t, "campaign", e.Campaign(s.context(), "one"))
		resumed := concurrency.ResumeElection(session, "office", e.Key(), e.Rev())
		wantOK(t, "proclaim", resumed.Proclaim(s.context(), "two"))
		leader, err := e.Leader(s.context())
		wantOK(t, "leader", err)
		wantEqual(t, "leader", string(leader.Kvs[0].Value), "two")
		stale := concurrency.ResumeElection(session, "office", e.Key(), e.Rev()-1)
		wantIs(t, "of another time", stale.Proclaim(s.context(), "x"), concurrency.ErrElectionNotLeader)
		wantOK(t, "resign", resumed.Resign(s.context()))
		wantIs(t, "afterwards", e.Proclaim(s.context(), "x"), concurrency.ErrElectionNotLeader)
	})
}
