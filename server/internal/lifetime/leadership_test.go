package lifetime

import (
	"context"
	"errors"
	"testing"
)

func TestAnotherLeaderInTheSameTermBeginsALeadership(t *testing.T) {
	leader, term := uint64(1), uint64(5)
	l := New(func() (uint64, uint64) { return leader, term })
	l.Leadership()
	term = 6
	stream, end := l.Stream(context.Background(), OneLeadership)
	defer end(nil)
	leader = 2
	if newest := l.Leadership(); newest.Leader != 2 {
		t.Errorf("the leadership is that of %d", newest.Leader)
	}
	<-stream.Done()
	if cause := context.Cause(stream); !errors.Is(cause, ErrLeaderChanged) {
		t.Errorf("the stream of the former leader ends because %v", cause)
	}
	if l.Leaderships() != 3 {
		t.Errorf("%d leaderships were seen", l.Leaderships())
	}
}

func TestLeadershipLastsWhileNobodyLeads(t *testing.T) {
	leader := uint64(1)
	l := New(func() (uint64, uint64) { return leader, 5 })
	stream, end := l.Stream(context.Background(), OneLeadership)
	defer end(nil)
	leader = 0
	l.Leadership()
	leader = 1
	l.Leadership()
	if stream.Err() != nil || l.Leaderships() != 1 {
		t.Errorf("after %d leaderships the stream ended: %v", l.Leaderships(), context.Cause(stream))
	}
}

func TestLostLeaderEndsOnlyStreamsThatNeedOne(t *testing.T) {
	l := New(nil)
	needs, endNeeds := l.Stream(context.Background(), WhileLed)
	defer endNeeds(nil)
	other, endOther := l.Stream(context.Background(), AnyLeader)
	defer endOther(nil)
	l.LeaderLost()
	<-needs.Done()
	if other.Err() != nil {
		t.Error("a stream that needs no leader has ended")
	}
	l.End(ErrStopping)
	<-other.Done()
	if cause := context.Cause(other); !errors.Is(cause, ErrStopping) || !errors.Is(l.Err(), ErrStopping) {
		t.Errorf("the stream ends because %v", cause)
	}
}
