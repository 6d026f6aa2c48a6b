package namesapi

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// watchPage is how many names are told of in one message.
const watchPage = 256

var errTooManyNameWatchers = errors.New("too many watchers on this connection: end some, or use another one")

type namesWatchStream = grpc.ServerStreamingServer[leasekeeperv1.WatchResponse]

// Watch tells how names are and then what happens to them. It needs no goroutine but the stream's own.
func (n *Service) Watch(r *leasekeeperv1.WatchRequest, stream namesWatchStream) error {
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	watchers, leave := n.cfg.Watchers.Join(stream.Context())
	defer leave()
	if !watchers.Admit() {
		return errTooManyNameWatchers
	}
	defer watchers.Discharge(1)
	defer n.cfg.Metrics.OpenWatch()()
	watch := n.cfg.Member.WatchNames(r.Prefix)
	defer watch.Close()
	w := &nameWatch{member: n.cfg.Member, stream: stream, watch: watch, prefix: r.Prefix}
	for {
		if err := w.tellAll(ctx); err != nil {
			return err
		}
		if err := w.tellChanges(ctx); err != nil {
			return err
		}
	}
}

// nameWatch is one stream under way.
type nameWatch struct {
	member Member
	stream namesWatchStream
	watch  *node.NameWatch
	prefix string

	// pages are what was told of how names are: of all up to last as they were after the log entry of that
	// index, or later. What happened up to then is not told again.
	pages []toldPage
	told  uint64 // the greatest index in pages
	// meanwhile is what has happened to names while that was told, the newest of each.
	meanwhile map[string]ownership.Change
	missed    bool
}

type toldPage struct {
	last  string
	final bool // it is about all names behind those of the pages before
	index uint64
}

// tellAll tells how all names are. What happens meanwhile is put together, so that it needs no more room than
// there are names.
func (w *nameWatch) tellAll(ctx context.Context) error {
	for begun := false; !begun || w.missed; begun = true {
		w.pages, w.told, w.meanwhile, w.missed = nil, 0, make(map[string]ownership.Change), false
		if err := w.stream.Send(&leasekeeperv1.WatchResponse{Begin: true}); err != nil {
			return err
		}
		if err := w.tellPages(ctx); err != nil {
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
	if err := w.tell(newest); err != nil {
		return err
	}
	return w.stream.Send(&leasekeeperv1.WatchResponse{Synced: true})
}

func (w *nameWatch) tellPages(ctx context.Context) error {
	for after := ""; ; {
		names, index, err := w.member.HeldNames(ctx, w.prefix, after, watchPage)
		if err != nil {
			return err
		}
		states, err := w.member.Names(ctx, names)
		if err != nil {
			return err
		}
		page := toldPage{final: len(names) < watchPage, index: index}
		resp := new(leasekeeperv1.WatchResponse)
		for i := range states.Names {
			if tellable(&states.Names[i]) && states.Names[i].Held {
				resp.Events = append(resp.Events, &leasekeeperv1.WatchEvent{
					Kind: leasekeeperv1.WatchEvent_PRESENT, Info: nameInfo(&states.Names[i]),
				})
			}
		}
		if len(names) > 0 {
			page.last = names[len(names)-1]
		}
		w.pages, w.told, after = append(w.pages, page), max(w.told, page.index), page.last
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

// gather takes note of what has happened since it was called last.
func (w *nameWatch) gather() {
	changes, missed := w.watch.Take()
	w.missed = w.missed || missed
	for _, c := range changes {
		w.meanwhile[c.State.Name] = c
	}
}

// tellChanges tells what happens until some of it was missed.
func (w *nameWatch) tellChanges(ctx context.Context) error {
	for {
		changes, missed, err := w.watch.Next(ctx)
		if err != nil || missed {
			return err
		}
		if err := w.tell(changes); err != nil {
			return err
		}
	}
}

func (w *nameWatch) tell(changes []ownership.Change) error {
	resp, size := new(leasekeeperv1.WatchResponse), 0
	for i := range changes {
		c := &changes[i]
		if !tellable(&c.State) || w.knows(c) {
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

// knows says whether how the name is after a change was told already.
func (w *nameWatch) knows(c *ownership.Change) bool {
	if c.Index > w.told {
		return false
	}
	i, _ := slices.BinarySearchFunc(w.pages, c.State.Name, func(p toldPage, name string) int {
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
