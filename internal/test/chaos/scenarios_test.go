//go:build linux

package chaos

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// Short times, so that a day is short. The defaults have a test of their own.
const (
	masterLease     = 350 * time.Millisecond
	electionTimeout = 400 * time.Millisecond
	readTimeout     = 400 * time.Millisecond
	// saysSo is how long a member that cannot know may take to say so.
	saysSo = 4 * time.Second
)

// world is a group on whose days clients work.
type world struct {
	t *testing.T
	*group
	load    *load
	lasting int64 // a lease that lasts longer than the test
}

func newWorld(t *testing.T, g *group) *world {
	w := &world{t: t, group: g, load: startLoad(t, g)}
	w.load.call("a grant", 0, func(ctx context.Context, s stubs) error {
		granted, err := s.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 3600})
		w.lasting = granted.GetID()
		return err
	})
	return w
}

// days are the bad days.
var days = []struct {
	name string
	play func(*world)
}{
	{"leader killed", leaderKilled},
	{"leader paused", leaderPaused},
	{"leader cut off", leaderCutOff},
	{"leader vanishes", leaderVanishes},
	{"leader hears nothing", leaderDeaf},
	{"leader is not heard", leaderSendsNothing},
	{"follower cut off", followerCutOff},
	{"only support restarted", onlySupportRestarted},
	{"all killed", allKilled},
	{"wall clocks stepped", wallClocksStepped},
	{"messages delayed", messagesDelayed},
	{"transfer aborted", transferAborted},
	{"disk stalls", diskStalls},
	{"disk fails", diskFails},
}

// TestBadDays plays the days behind proxies, and in network namespaces where that is allowed.
func TestBadDays(t *testing.T) {
	if os.Getenv(insideVariable) != "" {
		playDays(t, newNamespaces(t))
		return
	}
	t.Parallel()
	noteSources(t)
	t.Run("namespaces", func(t *testing.T) {
		t.Parallel()
		said, err := inNamespaces("TestBadDays")
		switch {
		case errors.Is(err, errNotAllowed):
			t.Logf("%v; the days are played behind proxies", err)
		case err != nil:
			t.Errorf("%v\n%s", err, said)
		default:
			t.Logf("%s", said)
		}
	})
	t.Run("proxies", func(t *testing.T) {
		t.Parallel()
		playDays(t, newProxied(t))
	})
}

// TestLeaderKilledWithDefaults has a leader killed, and another one paused, in a group that was told no times.
func TestLeaderKilledWithDefaults(t *testing.T) {
	t.Parallel()
	g := startGroup(t, newProxied(t))
	w := newWorld(t, g)
	defer w.load.end(false)
	leaderKilled(w)
	w.whole()
	w.load.progress()
	leaderPaused(w)
	w.whole()
}

// TestOnlySupportRestartedAtTheWorstMoment has promises that last much longer than an election takes. A follower that
// forgot in its restart what it has promised would help to elect another while the leader may still answer.
func TestOnlySupportRestartedAtTheWorstMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startGroup(t, newProxied(t), "--master-lease", "3s"))
	defer w.load.end(false)
	onlySupportRestarted(w)
	w.net.heal()
	w.whole()
}

// TestSlowLeaderHandsOver has each sync of a leader take half a second, while the disks of the others are as they were.
// It hands over while that lasts, and only once.
func TestSlowLeaderHandsOver(t *testing.T) {
	t.Parallel()
	g := startGroup(t, newProxied(t))
	w := newWorld(t, g)
	defer w.load.end(false)
	leader := w.leader()
	w.load.progress()
	s, err := w.tamper(leader, "delay_enter=500000")
	if err != nil {
		t.Logf("no disk can be slowed down here: %v; that is left to internal/replica", err)
		return
	}
	defer s.end()
	began, longest, puts := time.Now(), time.Duration(0), 0
	for i := 0; time.Since(began) < 10*time.Second; i++ {
		asked := time.Now()
		w.load.call("a put", others(leader)[0], func(ctx context.Context, s stubs) error {
			_, err := s.kv.Put(ctx, &pb.PutRequest{Key: []byte("slow"), Value: []byte(strconv.Itoa(i))})
			return err
		})
		if took := time.Since(asked); took > longest {
			longest = took
			t.Logf("a put after %v took %v", asked.Sub(began).Round(time.Millisecond), took.Round(time.Millisecond))
		}
		puts++
	}
	t.Logf("%d puts through a member with a quick disk, the longest took %v", puts, longest.Round(time.Millisecond))
	if w.leader() == leader {
		t.Error("the leader with the slow disk leads still")
	}
	said := 0
	for _, m := range w.members {
		text, err := os.ReadFile(m.logs())
		must(t, err)
		said += strings.Count(string(text), "hands over to a member that is better off")
	}
	if said != 1 {
		t.Errorf("%d hand-overs within ten seconds", said)
	}
}

func playDays(t *testing.T, n network) {
	g := startGroup(t, n, "--election-timeout", electionTimeout.String(), "--master-lease", masterLease.String(),
		"--read-timeout", readTimeout.String())
	w := newWorld(t, g)
	played := 0
	defer func() { w.load.end(played == len(days)) }()
	for _, day := range days {
		// One group has them all, so it is no use to go on after one that ended badly.
		if !t.Run(day.name, func(t *testing.T) {
			played++
			w.begin(t)
			w.load.progress()
			day.play(w)
			w.net.heal()
			w.whole()
		}) {
			break
		}
	}
	w.begin(t)
}

// begin has what is found out from now on told to t.
func (w *world) begin(t *testing.T) { w.t, w.group.t = t, t }

// leaderKilled has a leader killed, and started again.
func leaderKilled(w *world) {
	leader := w.leader()
	w.kill(leader)
	w.load.progress()
	w.start(leader)
}

// leaderPaused has a leader stand still for longer than its lease, with questions waiting for it when it goes on.
func leaderPaused(w *world) {
	leader := w.leader()
	w.freeze(leader)
	w.load.progress()
	waiting := w.ask(leader) // another leads, so what it believes is old
	time.Sleep(2 * masterLease)
	w.signal(leader, syscall.SIGCONT)
	for _, err := range waiting() {
		var lost errLost
		if errors.As(err, &lost) {
			w.t.Errorf("a leader that stood still: %v", lost)
		}
	}
}

// ask asks a member for what is authoritative, in several ways, and returns what gives the answers.
func (w *world) ask(at int) func() []error {
	s := w.members[at].stubs
	var running sync.WaitGroup
	errs := make([]error, 3*len(w.load.registers))
	for i, r := range w.load.registers {
		for j := range 3 {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(w.t.Context(), callLimit)
				defer cancel()
				errs[3*i+j] = r.look(ctx, s)
			})
		}
	}
	return func() []error {
		running.Wait()
		return errs
	}
}

// leaderCutOff has a leader lose the others, but not its clients.
func leaderCutOff(w *world) {
	leader := w.leader()
	for _, other := range others(leader) {
		w.net.cut(leader, other)
		w.net.cut(other, leader)
	}
	w.load.progress()
	w.saysThatItDoesNotKnow(leader)
}

// saysThatItDoesNotKnow looks that a member without the others refuses what it cannot know, by itself and soon.
func (w *world) saysThatItDoesNotKnow(at int) {
	w.t.Helper()
	s := w.members[at].stubs
	key := []byte(w.load.registers[0].key)
	for what, ask := range map[string]func(context.Context) error{
		"a read": func(ctx context.Context) error {
			_, err := s.kv.Range(ctx, &pb.RangeRequest{Key: key})
			return err
		},
		"a write": func(ctx context.Context) error {
			_, err := s.kv.Put(ctx, &pb.PutRequest{Key: []byte("minority")})
			return err
		},
		"a grant": func(ctx context.Context) error {
			_, err := s.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: leaseSeconds})
			return err
		},
		"a renewal": func(ctx context.Context) error { return (&heldLease{id: w.lasting}).renew(ctx, s) },
		"a look at a lease": func(ctx context.Context) error {
			_, err := s.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: w.lasting})
			return err
		},
		"a look at a name": func(ctx context.Context) error {
			_, err := s.names.Get(ctx, &leasekeeperv1.GetRequest{Name: contended[0]})
			return err
		},
		"a list of leases": func(ctx context.Context) error {
			_, err := s.lease.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(w.t.Context(), saysSo)
		began := time.Now()
		err := ask(ctx)
		switch took := time.Since(began).Round(time.Millisecond); {
		case err == nil:
			w.t.Errorf("%s at a member without the others was answered", what)
		case ctx.Err() != nil:
			w.t.Errorf("%s at a member without the others was not answered within %v", what, saysSo)
		default:
			w.t.Logf("%s at a member without the others, after %v: %v", what, took, err)
		}
		cancel()
	}
	if _, err := s.kv.Range(w.t.Context(), &pb.RangeRequest{Key: key, Serializable: true}); err != nil {
		w.t.Errorf("a read of what the member has, as old as it may be: %v", err)
	}
}

// leaderVanishes has everything from and to a leader swallowed, with all connections open.
func leaderVanishes(w *world) {
	w.net.isolate(w.leader())
	w.load.progress()
	time.Sleep(2 * masterLease) // with clients that believe in it
}

// leaderDeaf has a leader send, and hear nothing.
func leaderDeaf(w *world) {
	leader := w.leader()
	for _, other := range others(leader) {
		w.net.cut(other, leader)
	}
	w.load.progress()
	w.saysThatItDoesNotKnow(leader)
}

// leaderSendsNothing loses what a leader sends; the leader hears the others.
func leaderSendsNothing(w *world) {
	leader := w.leader()
	for _, other := range others(leader) {
		w.net.cut(leader, other)
	}
	w.load.progress()
	w.saysThatItDoesNotKnow(leader)
}

// followerCutOff has a follower lose the others, but not its clients. For a while it believes that there is a leader.
func followerCutOff(w *world) {
	alone := others(w.leader())[0]
	for _, other := range others(alone) {
		w.net.cut(alone, other)
		w.net.cut(other, alone)
	}
	w.load.progress()
	w.saysThatItDoesNotKnow(alone)
}

// onlySupportRestarted has a follower killed that was all that a leader had, and started again where it could help to
// elect the third member, of which the leader knows nothing.
func onlySupportRestarted(w *world) {
	leader := w.leader()
	support, third := others(leader)[0], others(leader)[1]
	w.net.cut(leader, third)
	w.net.cut(third, leader)
	w.net.cut(support, third)
	w.net.cut(third, support)
	w.load.progress()
	w.kill(support)
	w.start(support)
	w.net.heal()
	for _, other := range others(leader) {
		w.net.cut(leader, other)
		w.net.cut(other, leader)
	}
	w.load.progress()
	w.saysThatItDoesNotKnow(leader)
}

// allKilled has all members killed at once, and started again.
func allKilled(w *world) {
	for i := range size {
		w.signal(i, syscall.SIGKILL)
	}
	for i := range size {
		w.kill(i)
	}
	for i := range size {
		w.start(i)
	}
	w.load.progress()
}

// wallClocksStepped has the wall clock of each member jump by years, minutes and hours, there and back.
func wallClocksStepped(w *world) {
	const year = 365 * 24 * 3600
	for round, seconds := range []int64{30 * year, -20 * year, 90, -3600} {
		for i := range size {
			w.freeze(i)
			err := stepWall(w.members[i].process.cmd.Process.Pid, seconds*int64(1+i%2))
			w.signal(i, syscall.SIGCONT)
			if err != nil {
				w.t.Logf("wall clocks cannot be stepped here: %v; that nothing reads them is seen in the simulation, which has none", err)
				return
			}
		}
		w.load.progress()
		if round == 0 {
			w.mustLogYear(w.leader(), time.Now().Year()+29)
		}
	}
}

// mustLogYear looks that the step was one: a leader that hands over logs that with the time of its clock.
func (w *world) mustLogYear(leader, least int) {
	w.t.Helper()
	w.moveLeader(leader, others(leader)[0])
	w.eventually("a member logs in the future", func() bool {
		for _, m := range w.members {
			text, err := os.ReadFile(m.logs())
			must(w.t, err)
			for line := range strings.Lines(string(text)) {
				if year, err := time.Parse("2006", strings.TrimPrefix(line, "time=")[:4]); err == nil && year.Year() >= least {
					return true
				}
			}
		}
		return false
	})
}

// moveLeader has a leader hand over, which may fail.
func (w *world) moveLeader(leader, to int) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), callLimit)
	defer cancel()
	_, err := w.members[leader].maintenance.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: w.members[to].id})
	if ctx.Err() != nil {
		w.t.Errorf("to hand over has not ended within %v", callLimit)
	}
	return err
}

// messagesDelayed has messages come late, and a leader killed meanwhile.
func messagesDelayed(w *world) {
	if err := w.net.delay(20 * time.Millisecond); err != nil {
		w.t.Logf("%v; messages are delayed behind proxies", err)
		return
	}
	w.load.progress()
	leader := w.leader()
	w.kill(leader)
	w.load.progress()
	w.start(leader)
	w.whole()
}

// transferAborted has a leader hand over to a member that stands still.
func transferAborted(w *world) {
	leader := w.leader()
	to := others(leader)[0]
	w.freeze(to)
	began := time.Now()
	err := w.moveLeader(leader, to)
	w.t.Logf("to hand over to a member that stands still, after %v: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil {
		w.t.Error("a member that stands still has taken over")
	}
	w.load.progress()
	w.signal(to, syscall.SIGCONT)
}

// diskStalls has the disk of a leader take a second for what it is asked.
func diskStalls(w *world) {
	leader := w.leader()
	s, err := w.tamper(leader, "delay_enter=1000000")
	if err != nil {
		w.t.Logf("no disk can be stalled here: %v; that is left to the simulation", err)
		return
	}
	w.load.progress()
	w.load.progress()
	s.end()
}

// diskFails has the disk of a leader fail. It must end, for what a disk has once failed to write is in doubt.
func diskFails(w *world) {
	leader := w.leader()
	s, err := w.tamper(leader, "error=EIO")
	if err != nil {
		w.t.Logf("%v: writes fail instead", err)
		must(w.t, w.limitFiles(leader, 1))
	} else {
		defer s.end()
	}
	began, ended := time.Now(), w.members[leader].process.ended
	w.eventually("a member ends whose disk has failed", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	w.t.Logf("the member whose disk has failed ended after %v", time.Since(began).Round(time.Millisecond))
	w.load.progress()
	w.kill(leader)
	w.start(leader)
}
