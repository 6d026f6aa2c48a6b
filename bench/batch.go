package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// manyIDs is the number of ids in a message of a keeper with very many names.
	manyIDs = 10_000
	// batchWires carry messages of many ids, batchDepth of them under way on each.
	batchWires = 4
	batchDepth = 2
	// renewCalls are made at the same time of one backend.
	renewCalls = 4
)

// Numbers of the fields of a RenewRequest, and of those of a RenewResponse that report refusals.
const (
	renewNumber  = 1
	renewLeases  = 2
	renewRefused = 3
	renewPending = 4
)

// renewedIDs measures how many ids are renewed per second. A message has as many as the server's own API admits; etcd's
// admits one.
func renewedIDs(ids int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		conns, err := s.dial(rateConnections)
		if err != nil {
			return nil, err
		}
		err = grantNumbered(ctx, conns, manyInFlight, 0, z.batched)
		conns.close()
		if err != nil {
			return nil, err
		}
		if s.name == reference {
			numbers := make([]int, z.batched)
			for i := range numbers {
				numbers[i] = i
			}
			figures, err := renewingThose(ctx, s, z, numbers, pipelineStreams, pipelineDepth, goal)
			return forEachID(figures), err
		}
		figures, err := rate(ctx, s, z, batchWires, goal, func(ctx context.Context, worker int, count *atomic.Int64) error {
			return drive(ctx, s.addr, renewLoad(s.token, worker, ids, z.batched, count))
		})
		return forEachID(figures), err
	}
}

// renewLoad renews the leases of one worker again and again, a fixed number in each message.
func renewLoad(token string, worker, ids, leases int, count *atomic.Int64) *load {
	share := leases / batchWires
	first, number := firstLease+int64(worker*share), uint64(0)
	var packed [][]byte // the leases of one message each
	for from := 0; from+ids <= share; from += ids {
		packed = append(packed, packedIDs(first+int64(from), ids))
	}
	return &load{
		method: leasekeeperv1.Leasekeeper_Renew_FullMethodName,
		token:  token,
		stream: true,
		slots:  1,
		depth:  batchDepth,
		ask: func(_ int, buf []byte) []byte {
			number++
			buf = protowire.AppendVarint(protowire.AppendTag(buf, renewNumber, protowire.VarintType), number)
			return append(buf, packed[number%uint64(len(packed))]...)
		},
		answer:  func(_ int, message []byte) error { return allRenewed(message) },
		counted: func() { count.Add(int64(ids)) },
	}
}

// packedIDs is the field of a RenewRequest that names some leases.
func packedIDs(first int64, ids int) []byte {
	buf := protowire.AppendTag(nil, renewLeases, protowire.BytesType)
	buf = protowire.AppendVarint(buf, uint64(ids)*8)
	for i := range ids {
		buf = protowire.AppendFixed64(buf, uint64(first)+uint64(i))
	}
	return buf
}

// allRenewed returns an error unless a RenewResponse says that all leases of its message were renewed.
func allRenewed(message []byte) error {
	for rest := message; len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if number == renewRefused || number == renewPending {
			return fmt.Errorf("not all leases were renewed: % x", message)
		}
		rest = rest[size:]
	}
	return nil
}

// forEachID reports nanoseconds: an id takes less than a microsecond.
func forEachID(figures []figure) []figure {
	for i := range figures {
		if f := &figures[i]; f.unit == "us" {
			f.unit, f.value = "ns", f.value*1000
		}
	}
	return figures
}

// errNoBackend means that a row cannot be measured on etcd.
var errNoBackend = errors.New("etcd does not have our own API, which this row measures")

// ownBackend opens the one that uses our own API, which etcd does not have.
func ownBackend(ctx context.Context, s *server) (backend.Backend, error) {
	if s.name == reference {
		return nil, errNoBackend
	}
	return backend.Open(ctx, storeURL(s, "leasekeeper"))
}

// etcdBackend opens the one that uses nothing but etcd's API.
func etcdBackend(ctx context.Context, s *server) (backend.Backend, error) {
	return backend.Open(ctx, storeURL(s, "etcd"))
}

// backendRenewals measures how many leases are renewed per second through the client, by calls that renew
// all of them at once.
func backendRenewals(open func(context.Context, *server) (backend.Backend, error),
	goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) (figures []figure, err error) {
		b, err := open(ctx, s)
		if errors.Is(err, errNoBackend) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
		leases := make([]backend.Lease, z.backend)
		err = spread(ctx, prepareInFlight, len(leases), func(ctx context.Context, _, i int) (err error) {
			leases[i], err = claim(ctx, b, i)
			return err
		})
		if err != nil {
			return nil, err
		}
		p, err := pacing(ctx, s.cpuTime, z, renewCalls, func(ctx context.Context, _ int, count *atomic.Int64) error {
			for {
				if err := renewOnce(ctx, b, leases); err != nil {
					return err
				}
				count.Add(int64(len(leases)))
			}
		})
		if err != nil {
			return nil, err
		}
		return forEachID(p.withClient(goal)), nil
	}
}

func claim(ctx context.Context, b backend.Backend, i int) (backend.Lease, error) {
	c := backend.Claim{Name: fmt.Sprintf("own/%d", i), Holder: backend.Holder{ID: "bench"}, TTL: 10 * time.Minute}
	c.ID[0], c.ID[1], c.ID[2], c.ID[3] = 1, byte(i>>16), byte(i>>8), byte(i)
	lease, grant, err := b.Claim(ctx, c)
	if err == nil && !grant.Held {
		err = fmt.Errorf("nobody wants %s, but it is not granted", c.Name)
	}
	return lease, err
}

// renewOnce renews all leases, none of which may fail.
func renewOnce(ctx context.Context, b backend.Backend, leases []backend.Lease) error {
	reported, failed := 0, error(nil)
	err := b.Renew(ctx, leases, func(_ int, r backend.Renewal) {
		reported++
		if r.Err != nil {
			failed = r.Err
		}
	})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case reported != len(leases):
		return fmt.Errorf("%d of %d renewals were reported", reported, len(leases))
	}
	return nil
}
