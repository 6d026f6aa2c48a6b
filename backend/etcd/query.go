package etcd

import (
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
	// pageSize is how many keys are listed at once, without their values.
	pageSize = 1000
	// parallelInfos is how many names are asked about at once.
	parallelInfos = 8
	// infoTries is how often a name is looked at again because its owner vanished meanwhile.
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

// info tells about a name. What is told of the owner's lease was so while it owned the name.
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
	// Its key is there each time, and its lease is not: it cannot be told when that ends.
	return info, nil
}

// infoOf is what a key says about its owner.
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
		return nil, fmt.Errorf("%w: a list of up to %d names", backend.ErrInvalid, limit)
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	// A name whose holder goes between being found and being asked about would leave a gap, which must not
	// look like the end: then the search goes on behind it.
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

// names returns up to limit names with a line that begin with prefix and sort after the given one: the first
// of them, in order.
//
// Keys sort as names do, with one exception: the keys of a name that another one begins with, such as jobs
// and jobs/nightly, or jobs-old, may sort after those of the longer one. Such a name may stand behind the
// last key that was read, and is asked for by itself.
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
		return names, nil // that was all there is
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

// sorted returns what is in a set.
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

// scan reads the keys below all names that begin with prefix, from a name on, without their values, as they
// were at the revision that it returns, until each does not want any more.
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
	}
}
