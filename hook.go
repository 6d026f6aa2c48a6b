package leasekeeper

import (
	"context"
	"time"
)

// maxReports bounds the reports that wait for a slow hook.
const maxReports = 4096

// Hook receives the reports of a keeper, one after the other, on a goroutine of the keeper. It may take its time: no lease
// depends on it. Reports that come while 4096 wait, besides those being handed over, are left out, and a [ReportsMissed] counts
// them.
type Hook func(Report)

// WithHook makes the keeper report what happens to its claims and leases, for metrics and traces. Of several hooks each
// receives all reports. [Keeper.Shutdown] waits for a hook as it does for a logger.
func WithHook(h Hook) KeeperOption {
	return keeperOptionFunc(func(k *keeperOptions) {
		if h != nil {
			k.hooks = append(k.hooks, h)
		}
	})
}

// Report is one of [Waited], [Held], [Renewed], [Doubted], [Assured], [EndedEarly], [Lost], [Released] and [ReportsMissed]. Later
// versions may add more, so a hook ignores those that it does not know.
type Report interface{ report() }

// Subject is the tenure that a report is about.
type Subject struct {
	Name  string
	Token Token
}

// Waited reports that a call which waits for a name has ended: [Keeper.Acquire], or one turn of [Keeper.Run] or
// [Keeper.Campaign].
type Waited struct {
	Name string
	For  time.Duration
	Err  error // nil if the call got the name
}

// Held reports that a tenure has begun.
type Held struct {
	Subject
	TTL time.Duration
}

// Renewed reports that the store has acknowledged a renewal. Left is the margin: how long the lease would have lasted
// without it.
type Renewed struct {
	Subject
	TTL  time.Duration // before this renewal
	Left time.Duration
}

// Doubted reports that a lease was not renewed for half of its time. Left is how long it still lasts.
type Doubted struct {
	Subject
	Left time.Duration
	Err  error // of the last attempt to renew it; nil if there was none
}

// Assured reports that a lease which was in doubt is renewed again.
type Assured struct{ Subject }

// EndedEarly reports that [WithHealth], [HoldAtMost] or [Keeper.Transfer] ends a tenure.
type EndedEarly struct {
	Subject
	Why error
}

// Lost reports that a tenure has ended against the holder's will.
type Lost struct {
	Subject
	For time.Duration // how long it was held
	Why error
}

// Released reports that a lease was released.
type Released struct {
	Subject
	For time.Duration // how long it was held
	Err error         // set if the store has not confirmed the release, or has not recorded its tick; else nil
}

// ReportsMissed says that reports were left out, because the hook was too slow.
type ReportsMissed struct{ Reports int }

func (Waited) report()        {}
func (Held) report()          {}
func (Renewed) report()       {}
func (Doubted) report()       {}
func (Assured) report()       {}
func (EndedEarly) report()    {}
func (Lost) report()          {}
func (Released) report()      {}
func (ReportsMissed) report() {}

// callHooks returns a function that hands reports to hooks.
func callHooks(hooks []Hook) func(reports []Report, missed int) {
	return func(reports []Report, missed int) {
		if missed > 0 {
			reports = append(reports, ReportsMissed{missed})
		}
		for _, r := range reports {
			for _, h := range hooks {
				h(r)
			}
		}
	}
}

// asSubject returns the name and the token of the lease.
func (l *Lease) asSubject() Subject { return Subject{l.name, l.token} }

// heldFor returns how long the lease has been held. The keeper's lock is held.
func (l *Lease) heldFor() time.Duration { return l.k.clock.Now().Elapsed(l.began) }

// endJournals hands over what waits for the log and for the hooks.
func (k *Keeper) endJournals(ctx context.Context) {
	if k.journal != nil {
		k.journal.end(ctx)
	}
	if k.reports != nil {
		k.reports.end(ctx)
	}
}
