package server

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// abuseFull enables TestVanishingClientsAtFullScaleLeaveNothingBehind, which needs gigabytes of memory and a minute:
//
//	go test ./server -run VanishingClientsAtFullScale -abuse.full -timeout 10m -v
var abuseFull = flag.Bool("abuse.full", false, "also run the test with 5,000 connections and 100,000 streams")

// footprint is what vanished clients must not leave behind.
type footprint struct {
	goroutines int
	heap       uint64
}

func takeFootprint() footprint {
	var m runtime.MemStats
	runtime.GC() // twice, because of finalizers and pools
	runtime.GC()
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), m.HeapAlloc}
}

// wantNothingLeft waits until everything is as before, apart from what pools and timers keep.
func (f *front) wantNothingLeft(before footprint, connections int) {
	f.t.Helper()
	const heapSlack, goroutineSlack = 16 << 20, 20
	var now footprint
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Millisecond) {
		now = takeFootprint()
		watchers, streams := f.server.metrics.watchers.Load(), f.server.metrics.streams[watchStream].Load()+f.server.metrics.streams[keepAliveStream].Load()
		open := f.server.limits.connections[0].Open()
		counted := f.server.limits.watchers.Connections()
		if now.goroutines <= before.goroutines+goroutineSlack && now.heap <= before.heap+heapSlack &&
			watchers == 0 && streams == 0 && counted == 0 && open == connections {
			break
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("left behind: %d goroutines and %d bytes (%d and %d before), %d watchers, %d streams, %d connections with watchers, %d connections",
				now.goroutines, now.heap, before.goroutines, before.heap, watchers, streams, counted, open)
		}
	}
	f.t.Logf("goroutines %d, before %d; heap %.1f MB, before %.1f MB",
		now.goroutines, before.goroutines, float64(now.heap)/1e6, float64(before.heap)/1e6)
	if f.server.metrics.refused["internal"].Load() != 0 {
		f.t.Error("internal errors were answered")
	}
	f.put("still", "answers")
}

// wire is a connection that a test can cut like a power failure does: the other side receives a reset.
type wire struct {
	conn *grpc.ClientConn

	mu   sync.Mutex
	last *net.TCPConn
}

func newWire(t testing.TB, addr string, options ...grpc.DialOption) *wire {
	t.Helper()
	w := new(wire)
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last, _ = c.(*net.TCPConn)
			return c, nil
		}))...)
	wantOK(t, err)
	w.conn = conn
	return w
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		w.last.SetLinger(0)
		w.last.Close()
	}
}

// writing puts and deletes as fast as possible until stop is called.
func (f *front) writing() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for writer := range 4 {
		done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Appendf(nil, "w%d", (writer*7+i)%32)
				var err error
				if i%9 == 8 {
					_, err = f.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key})
				} else {
					_, err = f.kv.Put(ctx, &pb.PutRequest{Key: key, Value: make([]byte, 200)})
				}
				if err != nil && ctx.Err() == nil {
					f.t.Errorf("a write fails: %v", err)
					return
				}
			}
		})
	}
	return func() { cancel(); done.Wait() }
}

// watchAndVanish watches all writes, from now or from the past, or opens an empty stream. It ends with ctx, or when the
// wire is cut. Some clients never read.
func watchAndVanish(ctx context.Context, conn *grpc.ClientConn, rng *rand.Rand) {
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return
	}
	for i := range rng.IntN(5) {
		stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte("w"), RangeEnd: []byte("x"), PrevKv: true, StartRevision: int64(rng.IntN(3)), Fragment: i%2 == 0,
			ProgressNotify: rng.IntN(2) == 0,
		}}})
	}
	switch rng.IntN(3) {
	case 0:
		stream.CloseSend()
	case 1:
		<-ctx.Done()
		return
	}
	for ; err == nil; _, err = stream.Recv() {
	}
}

func renewAndVanish(ctx context.Context, conn *grpc.ClientConn, rng *rand.Rand) {
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	reads := rng.IntN(2) == 0
	for err == nil && ctx.Err() == nil {
		if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: rng.Int64N(70)}); err == nil && reads {
			_, err = stream.Recv()
		}
		time.Sleep(time.Millisecond)
	}
}

// vanish opens streams on some connections and ends them at random moments. It ends them one by one, or together with
// their connection, which it closes or cuts.
func (f *front) vanish(rng *rand.Rand, connections, streams int, within time.Duration) {
	var gone sync.WaitGroup
	for range connections {
		w := newWire(f.t, f.server.Addr())
		ctx, cancel := context.WithTimeout(context.Background(), 2*within)
		ends := rng.Int64N(int64(within))
		how, seed := rng.IntN(3), rng.Uint64()
		var open sync.WaitGroup
		for i := range streams {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			open.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(within))))
				defer cancel()
				if i%3 == 0 {
					renewAndVanish(ctx, w.conn, rng)
				} else {
					watchAndVanish(ctx, w.conn, rng)
				}
			})
		}
		gone.Go(func() {
			defer cancel()
			time.Sleep(time.Duration(ends))
			switch how {
			case 0:
				w.cut()
			case 1:
				w.conn.Close()
			}
			open.Wait()
			w.conn.Close()
		})
	}
	gone.Wait()
}

// Hundreds of streams vanish at random moments under a load of writes.
func TestVanishingClientsLeaveNothingBehind(t *testing.T) {
	f := startFront(t)
	for id := range int64(64) {
		f.grant(600, id+1)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	round := func() {
		stop := f.writing()
		f.vanish(rng, 10, 40, 700*time.Millisecond)
		stop()
	}
	round() // pools, caches and the tail of the log keep this permanently
	before := takeFootprint()
	for range 3 {
		round()
	}
	f.wantNothingLeft(before, 1)
	leases, err := f.lease.LeaseLeases(f.ctx(), &pb.LeaseLeasesRequest{})
	wantOK(t, err)
	wantEqual(t, "leases", len(leases.Leases), 64)
}

// greetings are what may arrive on a new connection: nothing, half of HTTP/2's preface, something else, and valid
// HTTP/2 that no client should send.
var greetings = []string{
	"", "PRI * HT", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\xff\xff\xff\x01\x05\x00\x00\x00\x01half",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x04\x03\x00\x00\x00\x09\x00\x00\x00\x08",
}

// Thousands of connections that never send a request, open at the same time and then gone, do not disturb the clients
// that are served.
func TestVanishingConnectionsDoNotDisturbOthers(t *testing.T) {
	const connections = 1000
	f := startFront(t)
	f.put("a", "")
	before := takeFootprint()
	open := make([]*net.TCPConn, connections)
	for i := range open {
		conn, err := net.Dial("tcp", f.server.Addr())
		wantOK(t, err)
		open[i] = conn.(*net.TCPConn)
		_, err = conn.Write([]byte(greetings[i%len(greetings)]))
		wantOK(t, err)
		if i%100 == 0 {
			f.put("a", fmt.Sprint(i))
		}
	}
	eventually(t, "those that say nothing are waited for", func() bool {
		return f.server.limits.connections[0].Open() > connections/len(greetings)
	})
	for i, conn := range open {
		if i%2 == 0 {
			conn.SetLinger(0) // closing sends a reset
		}
		conn.Close()
	}
	f.wantNothingLeft(before, 1)
}

// The full scale is 5,000 connections with 20 streams each, all open at a time and then all cut. The test does this
// twice, because the runtime never frees its record of a goroutine, about 450 bytes for each of 340,000.
func TestVanishingClientsAtFullScaleLeaveNothingBehind(t *testing.T) {
	if !*abuseFull {
		t.Skip("takes gigabytes: run it with -abuse.full")
	}
	f := startFront(t)
	for id := range int64(64) {
		f.grant(600, id+1)
	}
	f.crowd(5000, 20)
	eventually(t, "all are gone", func() bool { return f.server.limits.connections[0].Open() == 1 && runtime.NumGoroutine() < 1000 })
	before := takeFootprint()
	f.crowd(5000, 20)
	f.wantNothingLeft(before, 1)
}

// crowd opens connections with streams, waits until all are served, and cuts all.
func (f *front) crowd(connections, streams int) {
	f.t.Helper()
	before := takeFootprint()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun := time.Now()
	var opening sync.WaitGroup
	wires, next := make([]*wire, connections), make(chan *wire)
	for range 32 {
		opening.Go(func() {
			for w := range next {
				for i := range streams {
					if err := openAndLeave(ctx, w.conn, i); err != nil {
						f.t.Errorf("opening a stream: %v", err)
						break
					}
				}
			}
		})
	}
	for i := range wires {
		wires[i] = newWire(f.t, f.server.Addr(), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
		next <- wires[i]
	}
	close(next)
	opening.Wait()
	full := takeFootprint()
	f.t.Logf("%d streams open after %v: %d goroutines, %d MB more on the heap, client and server together",
		f.server.metrics.streams[watchStream].Load()+f.server.metrics.streams[keepAliveStream].Load(),
		time.Since(begun), full.goroutines, (full.heap-before.heap)>>20)
	begun = time.Now()
	f.put("w", "1") // every watcher receives it
	f.t.Logf("a put with all of them there took %v", time.Since(begun))
	for i, w := range wires {
		if i%2 == 0 {
			w.cut()
		}
		w.conn.Close()
	}
}

// openAndLeave opens one stream, waits until it is served, and then does nothing with it.
func openAndLeave(ctx context.Context, conn *grpc.ClientConn, kind int) error {
	if kind%4 == 0 {
		stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(kind + 1)}); err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("w")}}})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}
