package namesapi

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// watchPage is the number of names in one message of a listing.
const watchPage = 256

var errTooManyNameWatchers = errors.New("too many watchers on this connection: end some, or use another one")

type namesWatchStream = grpc.ServerStreamingServer[leasekeeperv1.WatchResponse]

// Watch sends the state of all held names with a prefix, and then their changes. It uses only the goroutine of the
// stream.
func (n *Service) Watch(r *leasekeeperv1.WatchRequest, stream namesWatchStream) error {
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	if err := n.cfg.Rights.MayNames(ctx, r.Prefix, access.Watch); err != nil {
		return err
	}
	watchers, leave := n.cfg.Watchers.Join(stream.Context())
	defer leave()
	if !watchers.Admit() {
		return errTooManyNameWatchers
	}
	defer watchers.Discharge(1)
	if err := n.cfg.Rights.CountWatcher(stream.Context(), watchers); err != nil {
		return err
	}
	defer n.cfg.Metrics.OpenWatch()()
	watch := n.cfg.Member.WatchNames(r.Prefix)
	defer watch.Close()
	w := &nameWatch{member: n.cfg.Member, rights: n.cfg.Rights, stream: stream, watch: watch, prefix: r.Prefix}
	for {
		if err := w.sendListing(ctx); err != nil {
			return err
		}
		if err := w.streamChanges(ctx); err != nil {
			return err
		}
	}
}

// nameWatch is one Watch stream.
type nameWatch struct {
	member Member
	rights Rights
	stream namesWatchStream
	watch  *node.NameWatch
	prefix string

	// pages are the pages that were sent of the present listing. The client knows the names of a page as of its index,
	// or later. So earlier changes of these names are not sent.
	pages     []sentPage
	sentIndex uint64 // the greatest index in pages
	// meanwhile contains the changes during a listing, only the newest of each name.
	meanwhile map[string]ownership.Change
	missed    bool
}

type sentPage struct {
	last  string
	final bool // no names follow this page
	index uint64
}

// sendListing sends the state of all names. It keeps only the newest change of each name in the meantime, which bounds
// its memory by the number of names.
func (w *nameWatch) sendListing(ctx context.Context) error {
	for begun := false; !begun || w.missed; begun = true {
		w.pages, w.sentIndex, w.meanwhile, w.missed = nil, 0, make(map[string]ownership.Change), false
		if err := w.stream.Send(&leasekeeperv1.WatchResponse{Begin: true}); err != nil {
			return err
		}
		if err := w.sendPages(ctx); err != nil {
			return err
		}
	}
	newest := make([]ownership.Change, 0, len(w.meanwhile))
	for _, c := range w.meanwhile { // order: sorted below
		newest = append(newest, c)
	}
	slices.SortFunc(newest, func(a, b ownership.Change) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.State.Name, b.State.Name))
	})
	w.meanwhile = nil
	if err := w.sendChanges(newest); err != nil {
		return err
	}
	return w.stream.Send(&leasekeeperv1.WatchResponse{Synced: true})
}

func (w *nameWatch) sendPages(ctx context.Context) error {
	for after := ""; ; {
		names, index, err := w.member.HeldNames(ctx, w.prefix, after, watchPage)
		if err != nil {
			return err
		}
		states, err := w.member.Names(ctx, names)
		if err != nil {
			return err
		}
		page := sentPage{final: len(names) < watchPage, index: index}
		resp := new(leasekeeperv1.WatchResponse)
		for i := range states.Names {
			if isValidName(&states.Names[i]) && states.Names[i].Held {
				resp.Events = append(resp.Events, &leasekeeperv1.WatchEvent{
					Kind: leasekeeperv1.WatchEvent_PRESENT, Info: nameInfo(&states.Names[i]),
				})
			}
		}
		if len(names) > 0 {
			page.last = names[len(names)-1]
		}
		w.pages, w.sentIndex, after = append(w.pages, page), max(w.sentIndex, page.index), page.last
		if len(resp.Events) > 0 {
			if err := w.stream.Send(resp); err != nil {
				return err
			}
		}
		w.gather()
		if page.final || w.missed {
			return nil
		}
	}
}

// gather records the changes since its last call.
func (w *nameWatch) gather() {
	changes, missed := w.watch.Take()
	w.missed = w.missed || missed
	for _, c := range changes {
		w.meanwhile[c.State.Name] = c
	}
}

// streamChanges sends changes until it misses some.
func (w *nameWatch) streamChanges(ctx context.Context) error {
	for {
		changes, missed, err := w.watch.Next(ctx)
		if err != nil || missed {
			return err
		}
		if err := w.rights.MayNames(ctx, w.prefix, access.Watch); err != nil { // it may have been withdrawn
			return err
		}
		if err := w.sendChanges(changes); err != nil {
			return err
		}
	}
}

func (w *nameWatch) sendChanges(changes []ownership.Change) error {
	resp, size := new(leasekeeperv1.WatchResponse), 0
	for i := range changes {
		c := &changes[i]
		if !isValidName(&c.State) || w.covers(c) {
			continue
		}
		if size >= maxNamesBytes {
			if err := w.stream.Send(resp); err != nil {
				return err
			}
			resp, size = new(leasekeeperv1.WatchResponse), 0
		}
		event := nameEvent(c)
		size += proto.Size(event)
		resp.Events = append(resp.Events, event)
	}
	if len(resp.Events) == 0 {
		return nil
	}
	return w.stream.Send(resp)
}

// covers reports whether the listing already showed the state after a change.
func (w *nameWatch) covers(c *ownership.Change) bool {
	if c.Index > w.sentIndex {
		return false
	}
	i, _ := slices.BinarySearchFunc(w.pages, c.State.Name, func(p sentPage, name string) int {
		if !p.final && p.last < name {
			return -1
		}
		return 1
	})
	return i < len(w.pages) && c.Index <= w.pages[i].index
}

func nameEvent(c *ownership.Change) *leasekeeperv1.WatchEvent {
	e := &leasekeeperv1.WatchEvent{Info: nameInfo(&c.State), Why: leasekeeperv1.Why(c.Why), Note: c.Note}
	switch c.Kind {
	case ownership.Acquired:
		e.Kind = leasekeeperv1.WatchEvent_ACQUIRED
	case ownership.Vacated:
		e.Kind = leasekeeperv1.WatchEvent_VACATED
	case ownership.CardChanged:
		e.Kind = leasekeeperv1.WatchEvent_ANNOUNCED
	case ownership.StatusChanged:
		e.Kind = leasekeeperv1.WatchEvent_CHANGED
	}
	return e
}
