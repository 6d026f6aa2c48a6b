package etcd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// pageSize is how many keys one request lists, without their values.
	pageSize = 1000
	// parallelInfos is how many names are looked up at the same time.
	parallelInfos = 8
	// infoTries is how often a name is looked up again because its owner has gone between two reads.
	infoTries = 8
)

// Get implements [backend.Backend].
func (b *Backend) Get(ctx context.Context, name string) (backend.Info, error) {
	if err := backend.CheckName(name); err != nil {
		return backend.Info{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Info{}, err
	}
	defer end()
	info, f := b.info(ctx, name)
	if f != nil {
		return backend.Info{}, f.Read("asking about " + name)
	}
	return info, nil
}

// info returns the state of a name. The TTL of the owner's lease is from a time at which it owned the name.
func (b *Backend) info(ctx context.Context, name string) (backend.Info, *failure) {
	var info backend.Info
	for range infoTries {
		t, f := b.lookUpTenure(ctx, name, b.queuePrefix(name))
		if f != nil {
			return info, f
		}
		info = backend.Info{Name: name, Waiting: t.waiting}
		if t.owner == nil {
			return info, nil
		}
		info = infoOf(name, t.owner)
		info.Waiting = t.waiting
		left, f := b.timeToLive(ctx, t.owner.Lease, false)
		if f != nil {
			return info, f
		}
		if left.GrantedTTL > 0 {
			info.TTL, info.Remaining = ttlUnit.Duration(left.GrantedTTL), ttlUnit.Duration(max(0, left.TTL))
			return info, nil
		}
	}
	// The key is there each time, and its lease is not, so it is unknown when the lease ends.
	return info, nil
}

// infoOf returns what a key says about its owner.
func infoOf(name string, owner *mvccpb.KeyValue) backend.Info {
	info := backend.Info{
		Name: name, Held: true, Holder: holderOf(owner), Token: backend.Token(owner.CreateRevision),
		Remaining: -1, Waiting: -1,
	}
	if c, ok := readCard(owner); ok {
		info.TTL = ttlUnit.Duration(c.TTL)
	}
	return info
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Info, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("%w: a list of up to %d names: ask for at least one", backend.ErrInvalid, limit)
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	// A holder that leaves between the two reads leaves a gap. A caller must not take that for the end of the list, so the
	// search continues behind it.
	var found []backend.Info
	for {
		names, f := b.names(ctx, prefix, after, limit-len(found))
		if f != nil {
			return nil, f.Read("listing names")
		}
		infos, f := b.infos(ctx, names)
		if f != nil {
			return nil, f.Read("listing names")
		}
		for _, info := range infos {
			if info.Held {
				found = append(found, info)
			}
		}
		if len(names) == 0 || len(found) >= limit {
			return found, nil
		}
		after = names[len(names)-1]
	}
}

func (b *Backend) infos(ctx context.Context, names []string) ([]backend.Info, *failure) {
	infos, failures := make([]backend.Info, len(names)), make([]*failure, len(names))
	var asking sync.WaitGroup
	for worker := range min(parallelInfos, len(names)) {
		asking.Go(func() {
			for i := worker; i < len(names) && failures[worker] == nil; i += parallelInfos {
				infos[i], failures[worker] = b.info(ctx, names[i])
			}
		})
	}
	asking.Wait()
	for _, f := range failures {
		if f != nil {
			return nil, f
		}
	}
	return infos, nil
}

// names returns the first names that have a queue, begin with prefix and sort after the given name. It returns up to limit of
// them, in order.
//
// Keys sort as names do, with one exception. If one name begins with another, as jobs/nightly and jobs-old begin with jobs,
// the keys of the shorter name may sort after those of the longer one. So names looks up such shorter names one by one.
func (b *Backend) names(ctx context.Context, prefix, after string, limit int) ([]string, *failure) {
	found := make(map[string]bool)
	_, f := b.scan(ctx, prefix, max(prefix, after), func(kv *mvccpb.KeyValue) bool {
		if name, _, ok := b.split(string(kv.Key)); ok && b.mayBeQueued(name, kv) && name > after && strings.HasPrefix(name, prefix) {
			found[name] = true
		}
		return len(found) < limit
	})
	if f != nil {
		return nil, f
	}
	names := sorted(found)
	if len(names) < limit {
		return names, nil // there are no more
	}
	for _, name := range names {
		for i := range len(name) {
			short := name[:i]
			if _, asked := found[short]; asked || name[i] > '/' || short <= after || !strings.HasPrefix(short, prefix) || backend.CheckName(short) != nil {
				continue
			}
			t, f := b.lookUpTenure(ctx, short, b.queuePrefix(short))
			if f != nil {
				return nil, f
			}
			found[short] = t.owner != nil
		}
	}
	return sorted(found)[:limit], nil
}

// sorted returns the elements of a set in order.
func sorted(set map[string]bool) []string {
	var names []string
	for name, in := range set {
		if in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// scan reads the keys below all names that begin with prefix, from the name start on, without their values. It ends when each
// returns false. All keys are from the revision that it returns.
func (b *Backend) scan(ctx context.Context, prefix, start string, each func(*mvccpb.KeyValue) bool) (rev int64, f *failure) {
	next := from(b.root + start)
	for {
		resp, f := b.rangeKeys(ctx, &pb.RangeRequest{Key: next, RangeEnd: after(b.root + prefix), Limit: pageSize, KeysOnly: true, Revision: rev})
		if f != nil {
			return 0, f
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			if !each(kv) {
				return rev, nil
			}
			next = append(slices.Clone(kv.Key), 0)
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return rev, nil
		}
		if b.root == "" && bytes.HasPrefix(next, []byte(backend.MarkPrefix)) {
			next = after(backend.MarkPrefix) // no name begins with a slash
		}
	}
}
