package demo

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// someWrites is the number of writes of a holder before the next fault.
	someWrites = 4
	// mostTries bounds the attempts to pause a holder. An attempt fails if the lease ends before the holder is paused.
	mostTries = 3
)

// steps returns the faults of the scenario, in their order. Each returns when the name has a holder again.
func (s *scenario) steps() []func(context.Context) error {
	return []func(context.Context) error{s.killHolder, s.killLeader, s.pauseHolder, s.cutHolder, s.releaseName}
}

// settled waits until a worker holds the name and has written, and the other one waits. It returns that worker and its
// tenure.
func (s *scenario) settled(ctx context.Context) (*attached, tenure, error) {
	var t tenure
	err := s.await(ctx, "a holder and a waiter", func() bool {
		now := s.record.current()
		if now == nil || now.writes < someWrites {
			return false
		}
		for _, w := range s.workers {
			if w.name != now.holder && s.record.last[w.name].Kind != reportWaits {
				return false
			}
		}
		t = *now
		return true
	})
	if err != nil {
		return nil, t, err
	}
	for _, w := range s.workers {
		if w.name == t.holder {
			return w, t, nil
		}
	}
	return nil, t, fmt.Errorf("a worker of the unknown name %s holds the name", t.holder)
}

// awaitNext waits until the name has a new holder after t, which has written.
func (s *scenario) awaitNext(ctx context.Context, t tenure) error {
	return s.await(ctx, "the next holder", func() bool {
		next := s.newer(t.token)
		return next != nil && next.writes > 0
	})
}

// killHolder kills the holder's process, and starts it again when the name has another holder.
func (s *scenario) killHolder(ctx context.Context) error {
	w, t, err := s.settled(ctx)
	if err != nil {
		return err
	}
	at := clock.Now()
	s.actOn(t, "the demo KILLS %s, which can no longer release the name", w.name)
	w.child.end()
	s.record.stop(t.token, at, "killed")
	if err := s.awaitNext(ctx, t); err != nil {
		return err
	}
	return s.startWorker(ctx, w)
}

// killLeader kills the leader of the cluster. The holder keeps the name, because the other members renew its lease.
func (s *scenario) killLeader(ctx context.Context) error {
	_, t, err := s.settled(ctx)
	if err != nil {
		return err
	}
	old, err := s.leader(ctx, len(s.cluster.members))
	if err != nil {
		return err
	}
	s.act("the demo KILLS member %s, which leads", old.name)
	old.child.end()
	old.child = nil
	leader, err := s.leader(ctx, len(s.cluster.members)-1)
	if err != nil {
		return err
	}
	s.act("member %s leads now", leader.name)
	if err := s.awaitRenewed(ctx, t, leader); err != nil {
		return err
	}
	s.act("the demo starts member %s again", old.name)
	if err := s.cluster.startMember(old); err != nil {
		return err
	}
	if _, err = s.leader(ctx, len(s.cluster.members)); err != nil {
		return err
	}
	s.act("all members serve")
	return nil
}

// awaitRenewed waits until a lease lasts longer than it could without the new leader, or has ended.
func (s *scenario) awaitRenewed(ctx context.Context, t tenure, leader *member) error {
	renewed := clock.Now().Add(leaseTTL - leaseTTL/10) // more than a lease from before could last
	kept := false
	err := s.await(ctx, "the holder to renew its lease", func() bool {
		now := s.record.tenure(t.token)
		kept = now.until.After(renewed)
		return kept || now.stopped != (clock.Instant{})
	})
	if err == nil && kept {
		s.actOn(t, "member %s renews the lease of %s, which has kept the name", leader.name, t.holder)
	}
	return err
}

// pauseHolder pauses the holder between its check and its write until the name has another holder that has written. Then
// the paused worker writes with its old token.
func (s *scenario) pauseHolder(ctx context.Context) error {
	if !canPause {
		s.act("this system cannot pause a process (SIGSTOP): the demo omits that step")
		return nil
	}
	w, t, err := s.checked(ctx)
	if err != nil {
		return err
	}
	if err := pause(w.child.cmd.Process); err != nil {
		return fmt.Errorf("the demo cannot pause %s: %w", w.name, err)
	}
	s.actOn(t, "the demo PAUSES %s (SIGSTOP) between its check and its write", w.name)
	s.record.stop(t.token, clock.Now(), "paused")
	if err := s.awaitNext(ctx, t); err != nil {
		return err
	}
	// The worker reads this order when it goes on.
	if err := w.child.order(orderWrite); err != nil {
		return err
	}
	s.actOn(t, "the demo CONTINUES %s, which writes as if no time had passed", w.name)
	if err := resume(w.child.cmd.Process); err != nil {
		return fmt.Errorf("the demo cannot continue %s: %w", w.name, err)
	}
	return s.await(ctx, w.name+" to wait for the name again", func() bool { return s.record.last[w.name].Kind == reportWaits })
}

// checked makes a holder stop between its check and its write. It returns the holder and its tenure.
func (s *scenario) checked(ctx context.Context) (*attached, tenure, error) {
	for range mostTries {
		w, t, err := s.settled(ctx)
		if err != nil {
			return nil, t, err
		}
		if err := w.child.order(orderSlow); err != nil {
			return nil, t, err
		}
		var last report
		if err := s.await(ctx, w.name+" to check its lease", func() bool {
			last = s.record.last[w.name]
			return last.Kind != reportHolds
		}); err != nil {
			return nil, t, err
		}
		if last.Kind == reportChecked && last.Token == t.token {
			return w, t, nil
		}
	}
	return nil, tenure{}, errors.New("the holders lost their leases before the demo could pause them: this machine may be too busy, so try it again")
}

// cutHolder cuts the holder off from all members, until the name has another holder.
func (s *scenario) cutHolder(ctx context.Context) error {
	w, t, err := s.settled(ctx)
	if err != nil {
		return err
	}
	w.link.cut()
	s.actOn(t, "the demo CUTS %s off from all members: its proxy forwards nothing", w.name)
	if err := s.awaitNext(ctx, t); err != nil {
		return err
	}
	w.link.mend()
	s.act("the demo connects %s again", w.name)
	return nil
}

// releaseName makes the holder release the name. The waiter does not wait for the TTL then.
func (s *scenario) releaseName(ctx context.Context) error {
	w, t, err := s.settled(ctx)
	if err != nil {
		return err
	}
	s.actOn(t, "the demo asks %s to release the name", w.name)
	if err := w.child.order(orderRelease); err != nil {
		return err
	}
	return s.awaitNext(ctx, t)
}

// summarize judges the run and prints the tenures and the facts. It returns an error if a fact does not hold.
func (s *scenario) summarize(ctx context.Context) error {
	if _, _, err := s.settled(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(s.file())
	if err != nil {
		return err
	}
	log, err := parseLog(text)
	if err != nil {
		return err
	}
	s.record.finish(clock.Now())
	var facts []fact
	var rows [][]string
	s.record.look(func() {
		facts = judge(s.record.tenures, s.record.writes, log, canPause)
		rows = s.tenureRows()
	})
	return s.printSummary(rows, facts)
}
