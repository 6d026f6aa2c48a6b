package etcdapi

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// rangePartBytes is roughly the size of one part of a RangeStream.
const rangePartBytes = 1 << 20

// etcd's texts.
var (
	errStreamSorts   = status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	errStreamFilters = status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
)

// RangeStream sends the answer of a Range in parts, all of one revision. The last part has the header, more and count.
func (k *kvService) RangeStream(r *pb.RangeRequest, stream grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	if err := checkRangeStream(r); err != nil {
		return err
	}
	ctx := stream.Context()
	if isBulk(r) {
		ctx = keyspace.InTurn(ctx, k.cfg.Bulk, string(admission.IdentityOf(ctx)))
	}
	parts := rangeParts{api: k.API, request: rangeRequest(r), serializable: r.Serializable}
	parts.request.SortOrder, parts.request.SortTarget = keyspace.SortNone, keyspace.SortByKey // as checked
	if !r.CountOnly {
		parts.request.PartBytes = rangePartBytes
	}
	for {
		part, last, err := parts.next(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: part}); err != nil || last {
			return err
		}
	}
}

func checkRangeStream(r *pb.RangeRequest) error {
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	switch {
	case len(r.Key) == 0:
		return keyspace.ErrEmptyKey
	case !order || !target:
		return keyspace.ErrInvalidSort
	case r.SortOrder != pb.RangeRequest_NONE && (r.SortTarget != pb.RangeRequest_KEY || r.SortOrder != pb.RangeRequest_ASCEND):
		return errStreamSorts
	case r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0:
		return errStreamFilters
	}
	return nil
}

// rangeParts reads the parts of one answer.
type rangeParts struct {
	api          *API
	request      keyspace.RangeRequest // of the next part
	serializable bool                  // how to read the next part

	header replica.Header // of the answer, at the revision that was current at the beginning; set by the first part
	count  int64          // keys in earlier parts
}

// next reads the next part. last reports whether it is the last one.
func (p *rangeParts) next(ctx context.Context) (part *pb.RangeResponse, last bool, err error) {
	res, err := p.read(ctx, p.request)
	if err != nil {
		return nil, false, err
	}
	part = &pb.RangeResponse{Kvs: keyValues(res.KVs)}
	p.count += res.Count
	limit := p.request.Limit
	if last = !res.More || limit > 0 && int64(len(res.KVs)) == limit; last {
		part.Header, part.More, part.Count = header(p.header), res.More, p.count
		if !res.More {
			return part, last, nil
		}
	}
	p.request.Key = append(bytes.Clone(res.KVs[len(res.KVs)-1].Key), 0)
	if !last {
		if limit > 0 {
			p.request.Limit = limit - int64(len(res.KVs))
		}
		return part, last, nil
	}
	rest := p.request
	rest.CountOnly, rest.PartBytes, rest.Limit = true, 0, 0
	remaining, err := p.read(ctx, rest)
	part.Count += remaining.Count
	return part, last, err
}

// read reads at the revision of the first read.
func (p *rangeParts) read(ctx context.Context, request keyspace.RangeRequest) (keyspace.RangeResult, error) {
	h, res, err := readAt(p.api, p.serializable, func(serializable bool) (replica.Header, keyspace.RangeResult, error) {
		return p.api.cfg.Member.Range(ctx, request, serializable)
	})
	if err == nil && p.header.Revision == 0 {
		// This member has the revision now, so it reads the rest by itself.
		p.header, p.serializable = h, true
		p.header.Revision = res.Revision
		if p.request.Revision <= 0 {
			p.request.Revision = res.Revision
		}
	}
	return res, err
}
