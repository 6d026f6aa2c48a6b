package webconsole

import (
	"cmp"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// knowledge is what the reader knows of the store at one time. It is immutable.
type knowledge struct {
	store  storeFacts
	survey *survey.Survey // nil before the first reading
	// longest are the names of the survey with the longest queues.
	longest []survey.Name
	// fresh are the names of open pages, read after the survey.
	fresh map[string]survey.Name
	// foreign are the locks of other programs; nil before the first reading.
	foreign *foreignLocks
	// details are what only the page of one name shows.
	details map[string]detail
	// cluster and audit are about the server. They are nil before the first page that shows them, and if the store is no server.
	cluster *clusterFacts
	audit   *auditFacts
	// recent are the latest changes, the newest first.
	recent []happening
	plots  plots
	// trouble is why the last reading failed, or "". The rest is then as old as the last reading that succeeded.
	trouble string
	// readAt is the time of day of the last reading that succeeded. It is the zero time before the first.
	readAt time.Time
}

// storeFacts are what never changes while a store is open.
type storeFacts struct {
	scheme    string
	label     string // of the store for people, without a password
	url       string // by which programs open it, without a password
	limits    backend.Limits
	cautions  []string
	abilities abilities
	server    bool     // the store is a [Server]
	most      int      // names that the console keeps
	foreign   []string // kinds of locks of other programs that it recognizes
}

// abilities are what a store can do.
type abilities struct {
	History  bool `json:"history"`
	Revoke   bool `json:"revoke"`
	Pin      bool `json:"pin"`
	Transfer bool `json:"transfer"`
	Prefer   bool `json:"prefer"`
	Queue    bool `json:"queue"`
}

func factsOf(cfg Config) storeFacts {
	b := cfg.Store
	f := storeFacts{scheme: b.Scheme(), label: cfg.Label, url: cmp.Or(cfg.URL, cfg.Label), limits: b.Limits(), most: cfg.MaxNames, foreign: foreignKinds(b)}
	if c, ok := b.(backend.Cautious); ok {
		f.cautions = c.Cautions()
	}
	_, f.server = b.(Server)
	f.abilities = abilities{
		History: can[backend.Historian](b), Revoke: can[backend.Revoker](b), Pin: can[backend.Pinner](b),
		Transfer: can[backend.Transferrer](b), Prefer: can[backend.Preferrer](b), Queue: can[backend.QueueLister](b),
	}
	return f
}

func can[T any](b backend.Backend) bool {
	_, err := backend.Can[T](b)
	return err == nil
}

// detail is what only the page of one name shows.
type detail struct {
	history []backend.Tenure // newest first
	// err is why there is no history, such as [backend.ErrUnsupported].
	err error
	// queue are the first waiting claims, the next holder first.
	queue []backend.Waiter
	// queueErr is why there is no queue, such as [backend.ErrUnsupported].
	queueErr error
	// attached are the keys of the name's lease; nil if the store is no server, or the user may not see them.
	attached *attached
}

// happening is the end or the beginning of a tenure.
type happening struct {
	name   string
	at     time.Time // of day, when the reader noticed
	ended  bool
	was    backend.Holder // whose tenure ended, if ended
	why    backend.Reason // of the end; "" if unknown
	began  bool
	holder backend.Holder // whose tenure began, if began
	token  backend.Token  // of the tenure that began, or else of the one that ended
}

// find returns the newest that is known of a name, and whether the store has a record of it.
func (k *knowledge) find(name string) (n survey.Name, known bool) {
	if n, ok := k.fresh[name]; ok {
		return n, true
	}
	if k.survey == nil {
		return survey.Name{Info: backend.Info{Name: name, Waiting: -1}}, false
	}
	return k.survey.Find(name)
}

// plots are figures of the last hour, the oldest first.
type plots struct {
	held, waiting, began, expired, renewed []float64
}

// The slots of plots.
const (
	plotSlot  = 10 * time.Second
	plotSlots = 361 // with the one that is not full: one hour
)

// rings are what plots are made from. They belong to the reader.
type rings struct {
	held, waiting  *survey.Ring // at the end of a slot
	began, expired *survey.Ring // tenures per slot
	// renewed are the renewals that the leader of a server's cluster has counted in a slot, and observed the seconds of the slot
	// in which that counter was known.
	renewed, observed *survey.Ring
}

func newRings(now clock.Instant) rings {
	ring := func() *survey.Ring { return survey.NewRing(now, plotSlot, plotSlots) }
	return rings{ring(), ring(), ring(), ring(), ring(), ring()}
}

// record adds a survey and what changed since the last one.
func (r *rings) record(s *survey.Survey, changes []happening, now clock.Instant) {
	r.held.Set(now, float64(s.Counts.Held))
	waiting := float64(s.Counts.Waiting)
	if !s.Counts.WaitingKnown {
		waiting = survey.Missing
	}
	r.waiting.Set(now, waiting)
	began, expired := 0.0, 0.0
	for _, h := range changes {
		if h.began {
			began++
		}
		switch {
		case h.ended && h.why == "":
			expired = survey.Missing
		case h.ended && h.why == backend.Expired:
			expired++
		}
	}
	r.began.Add(now, began)
	r.expired.Add(now, expired)
}

func (r *rings) plots(now clock.Instant) plots {
	perSecond := func(values []float64) []float64 {
		for i := range values {
			values[i] /= plotSlot.Seconds()
		}
		return values
	}
	return plots{
		r.held.Values(now), r.waiting.Values(now), perSecond(r.began.Values(now)), perSecond(r.expired.Values(now)), r.renewalsPerSecond(now),
	}
}
