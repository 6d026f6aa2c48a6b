package webconsole

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// renewing makes a member acknowledge 50 renewals in each second from now on, after it had acknowledged some.
func (s *serverStore) renewing(member int, already uint64) {
	began := time.Now()
	s.set(func() {
		s.before = func() {
			n := already + uint64(50*time.Since(began).Seconds())
			s.members[member].Renewals = &n
		}
	})
}

// lastRenewals returns the newest figure of the plot for programs.
func (s *site) lastRenewals() *float64 {
	s.Helper()
	var data overviewJSON
	s.read("/?format=json", &data)
	values := data.Plots["renewed_per_second"].Values
	if len(values) == 0 {
		s.Fatal("the JSON has no plot of renewals")
	}
	return values[len(values)-1]
}

func TestOverviewPlotsRenewalsOfTheLeader(t *testing.T) {
	visitServer(t, func(s *site, store *serverStore) {
		store.renewing(0, 1_000_000)
		p := s.open("/")
		time.Sleep(3 * plotSlot)
		if p.news(); p.cells["plot.renewed.now"].Text != "50" || p.cells["plot.renewed.most"].Text != "50" {
			t.Errorf("50 renewals per second show as %q, at most %q", p.cells["plot.renewed.now"].Text, p.cells["plot.renewed.most"].Text)
		}
		if got := s.lastRenewals(); got == nil || *got < 49 || *got > 51 {
			t.Errorf("50 renewals per second are %v in the JSON", got)
		}
		store.set(func() {
			store.members[0].Role, store.members[1].Role, store.members[1].Term = leasekeeperv1.Member_FOLLOWER, leasekeeperv1.Member_LEADER, 8
		})
		store.renewing(1, 9_000_000)
		time.Sleep(3 * plotSlot)
		if p.news(); p.cells["plot.renewed.now"].Text != "50" || p.cells["plot.renewed.most"].Text != "50" {
			t.Errorf("under another leader, 50 renewals per second show as %q, at most %q", p.cells["plot.renewed.now"].Text, p.cells["plot.renewed.most"].Text)
		}
		store.renewing(1, 0) // its process starts again
		time.Sleep(3 * plotSlot)
		if p.news(); p.cells["plot.renewed.most"].Text != "50" {
			t.Errorf("after a start the plot shows at most %q", p.cells["plot.renewed.most"].Text)
		}
	})
}

// The leader may be of an earlier version, and other stores count no renewals.
func TestUnknownRenewalsAreADash(t *testing.T) {
	look := func(s *site) {
		p := s.open("/")
		time.Sleep(3 * plotSlot)
		if p.news(); p.cells["plot.renewed.now"].Text != dash || p.cells["plot.renewed.most"].Text != dash {
			t.Errorf("unknown renewals show as %q, at most %q", p.cells["plot.renewed.now"].Text, p.cells["plot.renewed.most"].Text)
		}
		if got := s.lastRenewals(); got != nil {
			t.Errorf("unknown renewals are %v in the JSON", *got)
		}
	}
	visit(t, nil, look)
	visitServer(t, func(s *site, _ *serverStore) { look(s) })
}

// Reports with a gap between them say nothing about the time of the renewals, and a slot needs to be observed for half of its
// length.
func TestRenewalsAreCountedWhileObserved(t *testing.T) {
	began := clock.Now()
	r := newRings(began)
	at := func(d time.Duration, count uint64) renewals { return renewals{1, count, began.Add(d)} }
	r.countRenewals(renewals{}, at(0, 100))
	r.countRenewals(at(0, 100), at(3*time.Second, 130))
	r.countRenewals(at(3*time.Second, 130), at(6*time.Second, 160))
	r.countRenewals(at(6*time.Second, 160), at(plotSlot+7*time.Second, 999))
	r.countRenewals(at(plotSlot+7*time.Second, 999), at(plotSlot+9*time.Second, 1019))
	rates := r.renewalsPerSecond(began.Add(2 * plotSlot))
	if first, second := rates[len(rates)-2], rates[len(rates)-1]; first != 10 || !survey.IsMissing(second) {
		t.Errorf("the rates are %v and %v, want 10 and none", first, second)
	}
}

// An expired lease shows in the plot of expirations, a released one does not.
func TestOverviewPlotsExpirations(t *testing.T) {
	visit(t, nil, func(s *site) {
		p := s.open("/")
		released, _ := s.claim("a", "me")
		s.release(released)
		time.Sleep(3 * plotSlot)
		if p.news(); p.cells["plot.expired.most"].Text != "0" {
			t.Errorf("after a release, the plot shows at most %q", p.cells["plot.expired.most"].Text)
		}
		_, g := s.claim("b", "me")
		time.Sleep(g.TTL + 3*plotSlot)
		if p.news(); p.cells["plot.expired.most"].Text == "0" || p.cells["plot.expired.most"].Text == dash {
			t.Errorf("after an expiration the plot shows at most %q", p.cells["plot.expired.most"].Text)
		}
	})
}
