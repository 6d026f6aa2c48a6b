package remote

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Watch implements [backend.Watcher]. Each stream begins with the state of all names, so no change is missed when one stream
// replaces another. While report blocks, the server keeps changes for some time; after that it sends the state of all names
// again. Watch reports pins and coming revocations as Resync.
func (b *Backend) Watch(ctx context.Context, prefix string, report func(backend.Event)) error {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	v := &view{b: b, report: report, held: make(map[string]bool)}
	retries := b.endpoints.Retries("watching names")
	for {
		retries.Begin()
		w, number := b.endpoints.Endpoint()
		err := v.follow(ctx, w, b.root+prefix)
		if ctx.Err() == nil && !answered(err) {
			b.endpoints.Leave(number)
		}
		if err := retries.After(ctx, err); err != nil {
			return err
		}
	}
}

// view is what a watcher has reported.
type view struct {
	b      *Backend
	report func(backend.Event)
	held   map[string]bool // names that were reported as held
	before map[string]bool // while the server sends all names again: those of held that it has not sent yet; else nil
}

// follow reports what comes on one stream, until the stream ends.
func (v *view) follow(ctx context.Context, w *endpoint, prefix string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// After the first answer silence is normal, and gRPC checks whether the server is there.
	timer := time.AfterFunc(v.b.endpoints.Patience(), func() { cancel(endpoints.ErrStalled) })
	defer timer.Stop()
	s, err := w.names.Watch(ctx, &leasekeeperv1.WatchRequest{Prefix: prefix})
	for err == nil {
		var resp *leasekeeperv1.WatchResponse
		if resp, err = s.Recv(); err == nil {
			timer.Stop()
			v.take(resp)
			err = endpoints.Ended(ctx)
		}
	}
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the server ended the watch")
	}
	return because(ctx, err)
}

func (v *view) take(resp *leasekeeperv1.WatchResponse) {
	if resp.Begin {
		v.before = maps.Clone(v.held)
	}
	for _, e := range resp.Events {
		v.publish(e)
	}
	if !resp.Synced {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(v.before)) {
		delete(v.held, name)
		v.report(backend.Event{Kind: backend.Resync, Info: backend.Info{Name: name}})
	}
	v.before = nil
}

func (v *view) publish(e *leasekeeperv1.WatchEvent) {
	info := v.b.info(e.Info)
	event := backend.Event{Kind: backend.Resync, Info: info, Why: reasons[e.Why]}
	known := v.held[info.Name]
	if delete(v.before, info.Name); info.Held {
		v.held[info.Name] = true
	} else {
		delete(v.held, info.Name)
	}
	switch {
	case v.before != nil:
		// A change that comes among all names is part of their state.
		event.Why = ""
		if !info.Held && !known {
			return
		}
	case e.Kind == leasekeeperv1.WatchEvent_ACQUIRED:
		event.Kind = backend.Acquired
	case e.Kind == leasekeeperv1.WatchEvent_VACATED:
		event.Kind = backend.Vacated
	case e.Kind == leasekeeperv1.WatchEvent_ANNOUNCED:
		event.Kind = backend.Announced
	}
	v.report(event)
}
