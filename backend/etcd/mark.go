package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// maxMarks is how often a request reads a mark again because another request has changed the mark.
const maxMarks = 8

// markKey is the key of the mark of a name. It is attached to no lease, so it stays when the name is released. It lies in no
// queue: no name begins with a slash, and a key without a lease is never queued.
func (b *Backend) markKey(name string) string { return backend.MarkPrefix + b.root + name }

// storedMark is a mark with the revision at which it was read.
type storedMark struct {
	backend.Mark
	rev int64 // the mod revision of its key; 0 if there is no key
}

// parseMark returns the mark in a key that was read; nil stands for no key.
func parseMark(kv *mvccpb.KeyValue) (storedMark, error) {
	if kv == nil {
		return storedMark{}, nil
	}
	m, err := backend.ParseMark(string(kv.Value))
	if err != nil {
		err = fmt.Errorf("%w: correct the key %s in etcd, or delete it", err, kv.Key)
	}
	return storedMark{m, kv.ModRevision}, err
}

// unchanged holds exactly while a key has the mod revision with which it was read; 0 stands for no key.
func unchanged(key string, rev int64) *pb.Compare {
	return &pb.Compare{
		Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: []byte(key),
		TargetUnion: &pb.Compare_ModRevision{ModRevision: rev},
	}
}

// revisionOf returns the mod revision of a key that was read; 0 if there is none.
func revisionOf(kv *mvccpb.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.ModRevision
}

// writeMark makes the key of a mark say m. The zero Mark deletes the key.
func writeMark(key string, m backend.Mark) *pb.RequestOp {
	if m.IsZero() {
		return deleteOp(key)
	}
	return putOp(&pb.PutRequest{Key: []byte(key), Value: []byte(m.Text())})
}

func putOp(put *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
}

func deleteOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

// permitted explains the error of a request for a mark if etcd's user may not use the keys of marks.
func (b *Backend) permitted(f *failure, err error) error {
	if !f.says(rpctypes.ErrGRPCPermissionDenied) {
		return err
	}
	return fmt.Errorf("%w: grant the user the keys that begin with %s too, to read and write", err, backend.MarkPrefix+b.root)
}

// Mark implements [backend.Marker].
func (b *Backend) Mark(ctx context.Context, name string) (backend.Mark, error) {
	if err := backend.CheckName(name); err != nil {
		return backend.Mark{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Mark{}, err
	}
	defer end()
	what := "reading the mark of " + name
	read, f := b.rangeKeys(ctx, oneKey(b.markKey(name)))
	if f != nil {
		return backend.Mark{}, b.permitted(f, f.Read(what))
	}
	m, err := parseMark(first(read))
	if err != nil {
		return backend.Mark{}, fmt.Errorf("%s: %w", what, err)
	}
	return m.Mark, nil
}

// first returns the first key of an answer, or nil if there is none.
func first(r *pb.RangeResponse) *mvccpb.KeyValue {
	if len(r.Kvs) == 0 {
		return nil
	}
	return r.Kvs[0]
}

// RaiseMark implements [backend.Marker].
func (b *Backend) RaiseMark(ctx context.Context, l backend.Lease, t backend.Tick) error {
	if err := backend.CheckTick(t); err != nil {
		return err
	}
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r := &recording{lease: own, tick: t, what: "marking " + t.String() + " of " + own.name + " as completed"}
	return r.run(ctx)
}

// ReplaceMark implements [backend.Marker]. If an answer was lost and the mark is new by then, it reports true: etcd does not say
// which request wrote a key.
func (b *Backend) ReplaceMark(ctx context.Context, name string, old, new backend.Mark) (bool, error) {
	if err := backend.CheckName(name); err != nil {
		return false, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	what, key := "replacing the mark of "+name, b.markKey(name)
	unsure := false // an attempt without an answer may have replaced the mark
	for range maxMarks {
		read, f := b.rangeKeys(ctx, oneKey(key))
		if f != nil {
			f.Maybe = unsure
			return false, b.permitted(f, f.Write(what))
		}
		now, err := parseMark(first(read))
		switch {
		case err != nil:
			return false, fmt.Errorf("%s: %w", what, err)
		case unsure && now.Mark == new:
			return true, nil
		case now.Mark != old:
			return false, nil
		}
		req := &pb.TxnRequest{Compare: []*pb.Compare{unchanged(key, now.rev)}, Success: []*pb.RequestOp{writeMark(key, new)}}
		resp, attempts := (*pb.TxnResponse)(nil), 0
		f = b.ask(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
			attempts++
			resp, err = w.txn(ctx, req, options...)
			return err
		})
		if f != nil {
			return false, b.permitted(f, f.Write(what))
		}
		if resp.Succeeded {
			return true, nil
		}
		unsure = unsure || attempts > 1
	}
	return false, fmt.Errorf("%w: %s: other processes keep changing it: try again", backend.ErrContention, what)
}

// ListMarks implements [backend.MarkLister].
func (b *Backend) ListMarks(ctx context.Context, prefix, after string, limit int) ([]backend.NamedMark, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("%w: a list of up to %d marks: ask for at least one", backend.ErrInvalid, limit)
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	key, last := endpoints.MarkRange(b.root, prefix, after)
	read, f := b.rangeKeys(ctx, &pb.RangeRequest{Key: key, RangeEnd: last, Limit: int64(limit)})
	if f != nil {
		return nil, b.permitted(f, f.Read("listing marks"))
	}
	return endpoints.ReadMarks(b.root, read.Kvs), nil
}
