package etcd

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Watch implements [backend.Watcher]. While report blocks, the backend takes nothing from etcd, which sends the rest later
// from its history. If etcd has compacted that history, Watch reports Resync events instead. Events have no reason why a
// tenure ended: etcd does not know it.
func (b *Backend) Watch(ctx context.Context, prefix string, report func(backend.Event)) error {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	v := &view{b: b, prefix: prefix, report: report}
	retries := b.endpoints.Retries("watching names")
	for {
		retries.Begin()
		if v.next == 0 {
			err = v.load(ctx)
		} else {
			err = b.watchKeys(ctx, watching{
				creates: []*pb.WatchCreateRequest{{
					Key: from(b.root + prefix), RangeEnd: after(b.root + prefix), StartRevision: v.next,
				}},
				handle: func(resp *pb.WatchResponse) bool {
					v.apply(resp.Events)
					return ctx.Err() != nil
				},
			})
		}
		if errors.Is(err, errCompacted) || says(err, rpctypes.ErrGRPCCompacted) {
			v.next = 0
		}
		if err == nil && ctx.Err() == nil {
			continue
		}
		if err := retries.After(ctx, b.retriable(err)); err != nil {
			return err
		}
	}
}

// view is what a watcher knows about names.
type view struct {
	b      *Backend
	prefix string
	report func(backend.Event)
	queues map[string]queue // by name
	next   int64            // the revision to continue from; 0 if the watcher must read all keys again
}

// queue has the keys in the queue of one name, by their own name.
type queue map[string]*mvccpb.KeyValue

// owner returns the key that was created first, or nil if there is none.
func (q queue) owner() *mvccpb.KeyValue {
	var first *mvccpb.KeyValue
	for _, kv := range q { // order: the first one is the same in any
		if first == nil || kv.CreateRevision < first.CreateRevision || kv.CreateRevision == first.CreateRevision && bytes.Compare(kv.Key, first.Key) < 0 {
			first = kv
		}
	}
	return first
}

// load reads all keys and reports every name that has a holder, or had one before.
func (v *view) load(ctx context.Context) error {
	var keys []string
	rev, f := v.b.scan(ctx, v.prefix, v.prefix, func(kv *mvccpb.KeyValue) bool {
		if name, _, ok := v.b.split(string(kv.Key)); ok && v.b.mayBeQueued(name, kv) {
			keys = append(keys, string(kv.Key))
		}
		return true
	})
	if f != nil {
		return f.Err
	}
	before := v.queues
	v.queues = make(map[string]queue)
	for batch := range slices.Chunk(keys, verifyBatch) {
		req := new(pb.TxnRequest)
		for _, key := range batch {
			r := oneKey(key)
			r.Revision = rev
			req.Success = append(req.Success, rangeOp(r))
		}
		resp, f := v.b.look(ctx, req)
		if f != nil {
			v.queues = before
			return f.Err
		}
		for _, r := range resp.Responses {
			if kv := single(r); kv != nil {
				v.put(kv)
			}
		}
	}
	v.next = rev + 1
	names := slices.Collect(maps.Keys(v.queues))
	for name, q := range before {
		if v.queues[name] == nil && q.owner() != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if owner := v.queues[name].owner(); owner != nil || before[name].owner() != nil {
			v.report(backend.Event{Kind: backend.Resync, Info: v.info(name)})
		}
	}
	return nil
}

// put notes the new state of a key.
func (v *view) put(kv *mvccpb.KeyValue) {
	name, _, ok := v.b.split(string(kv.Key))
	switch {
	case !ok || !strings.HasPrefix(name, v.prefix):
	case !v.b.isQueued(name, kv):
		v.remove(name, string(kv.Key))
	default:
		if v.queues[name] == nil {
			v.queues[name] = make(queue)
		}
		v.queues[name][string(kv.Key)] = kv
	}
}

func (v *view) remove(name, key string) {
	delete(v.queues[name], key)
	if len(v.queues[name]) == 0 {
		delete(v.queues, name)
	}
}

// info returns the state of a name.
func (v *view) info(name string) backend.Info {
	owner := v.queues[name].owner()
	if owner == nil {
		return backend.Info{Name: name}
	}
	info := infoOf(name, owner)
	info.Waiting = len(v.queues[name]) - 1
	return info
}

// apply takes events, one revision after the other, and reports what they changed.
func (v *view) apply(events []*mvccpb.Event) {
	for len(events) > 0 {
		rev, n := events[0].Kv.ModRevision, 0
		owners := make(map[string]*mvccpb.KeyValue) // before this revision, by name
		for ; n < len(events) && events[n].Kv.ModRevision == rev; n++ {
			kv := events[n].Kv
			name, _, ok := v.b.split(string(kv.Key))
			if !ok {
				continue
			}
			if _, seen := owners[name]; !seen {
				owners[name] = v.queues[name].owner()
			}
			if events[n].Type == mvccpb.Event_DELETE {
				v.remove(name, string(kv.Key))
			} else {
				v.put(kv)
			}
		}
		events = events[n:]
		v.next = rev + 1
		for _, name := range slices.Sorted(maps.Keys(owners)) {
			v.publish(name, owners[name], v.queues[name].owner())
		}
	}
}

// publish reports a change of the owner of a name, if it is one.
func (v *view) publish(name string, before, now *mvccpb.KeyValue) {
	kind := backend.Announced
	switch {
	case now == nil && before == nil:
		return
	case now == nil:
		kind = backend.Vacated
	case before == nil || before.CreateRevision != now.CreateRevision:
		kind = backend.Acquired
	case bytes.Equal(before.Value, now.Value):
		return
	}
	v.report(backend.Event{Kind: kind, Info: v.info(name)})
}
