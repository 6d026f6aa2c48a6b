package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// rawClient speaks HTTP/2 in ways that no library does.
type rawClient struct {
	t *testing.T
	net.Conn
	*http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	next    uint32
}

func dialRaw(t *testing.T, addr string, window uint32) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	wantOK(t, err)
	t.Cleanup(func() { conn.Close() })
	wantOK(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	r := &rawClient{t: t, Conn: conn, Framer: http2.NewFramer(conn, bufio.NewReader(conn)), next: 1}
	r.encoder = hpack.NewEncoder(&r.block)
	_, err = conn.Write([]byte(http2.ClientPreface))
	wantOK(t, err)
	wantOK(t, r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	return r
}

// begin opens a request.
func (r *rawClient) begin(method string, more ...hpack.HeaderField) (stream uint32) {
	r.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		wantOK(r.t, r.encoder.WriteField(f))
	}
	stream = r.next
	r.next += 2
	r.headers(stream, r.block.Bytes())
	return stream
}

func (r *rawClient) headers(stream uint32, block []byte) {
	const most = 16 << 10
	first := block[:min(len(block), most)]
	block = block[len(first):]
	wantOK(r.t, r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(block) == 0}))
	for len(block) > 0 {
		part := block[:min(len(block), most)]
		block = block[len(part):]
		wantOK(r.t, r.WriteContinuation(stream, len(block) == 0, part))
	}
}

// ask sends a request in full.
func (r *rawClient) ask(method string, m proto.Message) (stream uint32) {
	stream = r.begin(method)
	wantOK(r.t, r.WriteData(stream, true, framed(r.t, m)))
	return stream
}

func framed(t *testing.T, m proto.Message) []byte {
	text, err := proto.Marshal(m)
	wantOK(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// await reads until a frame satisfies wanted.
func (r *rawClient) await(what string, wanted func(http2.Frame) bool) {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			r.t.Fatalf("awaiting %s: %v", what, err)
		}
		if wanted(f) {
			return
		}
	}
}

// awaitClosed reads until the server has closed the connection.
func (r *rawClient) awaitClosed() {
	r.t.Helper()
	for {
		if _, err := r.ReadFrame(); err != nil {
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				r.t.Fatal("the server has not closed the connection")
			}
			return
		}
	}
}

// smallBudget starts a server with little memory. Its ranges can read 8 MB.
func smallBudget(t *testing.T) *front {
	cfg := anyPort()
	cfg.MemoryLimit = 128 << 20 // one eighth for answers, one sixteenth for the answers of one connection: 8 MiB
	f := startWith(t, cfg, nil)
	for i := range 80 {
		_, err := f.kv.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "k/%02d", i), Value: make([]byte, 100<<10)})
		wantOK(t, err)
	}
	return f
}

func half() *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte("k/"), RangeEnd: []byte("k/40")}
}

// used returns what all clients together use of a pool.
func (f *front) used(k poolKind) int64 { return f.server.budget.pools[k].used.Load() }

// The transaction reads the same keys 128 times.
func TestHugeTransactionIsRefusedBeforeItIsBuilt(t *testing.T) {
	f := smallBudget(t)
	txn := new(pb.TxnRequest)
	for range 128 {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: half()}})
	}
	_, err := f.kv.Txn(t.Context(), txn)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "request less at a time") {
		t.Errorf("a transaction that reads half a gigabyte: %v", err)
	}
	_, err = f.kv.Range(t.Context(), half())
	wantOK(t, err)
	eventually(t, "the room is given back", func() bool { return f.used(answerBytes) == 0 })
}

// A client sends requests and reads no answer. Its unread answers stay within the memory of one connection.
func TestUnreadAnswersAreBounded(t *testing.T) {
	f := smallBudget(t)
	r := dialRaw(t, f.server.Addr(), 0)
	for range 3 { // 4 MB each, of which one connection may have 8 MiB
		r.ask(pb.KV_Range_FullMethodName, half())
	}
	r.await("a refusal", func(frame http2.Frame) bool {
		h, ok := frame.(*http2.HeadersFrame)
		return ok && h.StreamEnded()
	})
	if used := f.used(answerBytes); used == 0 || used > 8<<20 {
		t.Errorf("answers that are not read count %d bytes", used)
	}
	// Another client is served in the meantime. Closing the connection releases its memory.
	_, err := f.kv.Range(t.Context(), half())
	wantOK(t, err)
	r.Close()
	eventually(t, "the room is given back", func() bool { return f.used(answerBytes) == 0 })
}

// Many connections read nothing. A request for little is nevertheless served in the end.
func TestConnectionWithMostUnreadAnswersIsClosed(t *testing.T) {
	f := smallBudget(t)
	for range 4 { // together they need more than the 16 MiB that there are
		r := dialRaw(t, f.server.Addr(), 0)
		for range 2 {
			r.ask(pb.KV_Range_FullMethodName, half())
		}
	}
	eventually(t, "the memory is used up, or a connection was closed", func() bool {
		return f.used(answerBytes) > 8<<20 || f.server.budget.evicted.Load() > 0
	})
	eventually(t, "a modest client is served", func() bool {
		_, err := f.kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("k/"), RangeEnd: []byte("k/10")})
		return err == nil
	})
	if used, most := f.used(answerBytes), f.server.budget.pools[answerBytes].most; used > most {
		t.Errorf("answers take %d bytes of %d", used, most)
	}
}

// Uncompressed answers keep the count of their bytes exact.
func TestCompressedRequestsGetUncompressedAnswers(t *testing.T) {
	f := smallBudget(t)
	got, err := f.kv.Range(t.Context(), half(), grpc.UseCompressor(gzip.Name))
	wantOK(t, err)
	if len(got.Kvs) != 40 {
		t.Errorf("%d keys", len(got.Kvs))
	}
	eventually(t, "the room is given back", func() bool { return f.used(answerBytes) == 0 })
}

// The watchers have tiny windows, and large keys change.
func TestMemoryOfSlowWatchersIsBounded(t *testing.T) {
	f := smallBudget(t)
	r := dialRaw(t, f.server.Addr(), 1)
	const watchers = 40
	for range watchers {
		stream := r.begin(pb.Watch_Watch_FullMethodName)
		wantOK(t, r.WriteData(stream, false, framed(t, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte("k/00")},
		}})))
	}
	eventually(t, "all watch", func() bool { return f.server.metrics.watchers.Load() == watchers })
	for range 2 {
		_, err := f.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k/00"), Value: make([]byte, 1<<20)})
		wantOK(t, err)
	}
	eventually(t, "events wait", func() bool { return f.used(answerBytes) > 6<<20 })
	if used := f.used(answerBytes); used > 8<<20 {
		t.Errorf("%d bytes wait to be sent on one connection", used)
	}
	r.Close()
	eventually(t, "the room is given back", func() bool { return f.used(answerBytes) == 0 && f.used(longStreams) == 0 })
}

// The client repeats a reference to one entry of the header table.
func TestLargeHeadersAreRefused(t *testing.T) {
	f := startFront(t)
	r := dialRaw(t, f.server.Addr(), 1<<20)
	r.begin(pb.KV_Range_FullMethodName, hpack.HeaderField{Name: "x", Value: strings.Repeat("a", 3500)})
	r.begin(pb.KV_Range_FullMethodName)
	const newest = 0x80 | 62
	stream := r.next
	r.next += 2
	r.headers(stream, append(bytes.Clone(r.block.Bytes()), bytes.Repeat([]byte{newest}, 100)...))
	r.await("a reset, or the end of the connection", func(frame http2.Frame) bool {
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return frame.StreamID == stream
		case *http2.GoAwayFrame:
			return true
		}
		return false
	})
}

// The header is not too large, but nothing reads it.
func TestHeadersThatNothingReadsAreDropped(t *testing.T) {
	f := startFront(t)
	r := dialRaw(t, f.server.Addr(), 1<<20)
	stream := r.begin(pb.KV_Range_FullMethodName, hpack.HeaderField{Name: "x", Value: strings.Repeat("a", 30<<10)})
	wantOK(t, r.WriteData(stream, true, framed(t, &pb.RangeRequest{Key: []byte("k")})))
	r.await("an answer", func(frame http2.Frame) bool {
		d, ok := frame.(*http2.DataFrame)
		return ok && d.StreamID == stream
	})
	stream = r.begin("/" + strings.Repeat("m", 30<<10))
	r.await("a refusal", func(frame http2.Frame) bool {
		h, ok := frame.(*http2.HeadersFrame)
		return ok && h.StreamID == stream && h.StreamEnded()
	})
}

// The client sends nearly all of many requests.
func TestBytesOfUnfinishedRequestsAreBounded(t *testing.T) {
	f := smallBudget(t)
	r := dialRaw(t, f.server.Addr(), 1<<20)
	part := make([]byte, 60<<10)
	part[2] = 0x10 // of 1 MiB
	for range 1000 {
		stream := r.next
		r.next += 2
		r.block.Reset()
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: pb.KV_Put_FullMethodName},
			{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		} {
			wantOK(t, r.encoder.WriteField(h))
		}
		err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block.Bytes(), EndHeaders: true})
		for rest := part; len(rest) > 0 && err == nil; rest = rest[min(len(rest), 16<<10):] {
			err = r.WriteData(stream, false, rest[:min(len(rest), 16<<10)])
		}
		if err != nil {
			break // the server has closed the connection
		}
		if unread := f.server.budget.unread.Load(); unread > f.server.budget.unreadEach+1<<20 {
			t.Fatalf("%d bytes of unfinished requests are kept", unread)
		}
	}
	r.awaitClosed()
	eventually(t, "all is given back", func() bool { return f.server.budget.unread.Load() == 0 })
	_, err := f.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k")})
	wantOK(t, err)
}

// One connection does not finish its request, and is closed. Another connection is idle, and stays.
func TestConnectionWithUnfinishedRequestIsClosed(t *testing.T) {
	f := startFront(t)
	idle := dialRaw(t, f.server.Addr(), 1<<20)
	idle.begin(pb.Watch_Watch_FullMethodName)
	late := dialRaw(t, f.server.Addr(), 1<<20)
	wantOK(t, late.WriteData(late.begin(pb.KV_Put_FullMethodName), false, []byte{0, 0, 0, 0, 9, 1}))
	eventually(t, "the request is seen", func() bool { return f.server.budget.unread.Load() > 0 })
	f.server.budget.closeLate(time.Now().Add(arrivalLimit-time.Second), arrivalLimit)
	wantOK(t, late.WritePing(false, [8]byte{}))
	late.await("an answer to a ping", func(frame http2.Frame) bool { p, ok := frame.(*http2.PingFrame); return ok && p.IsAck() })
	f.server.budget.closeLate(time.Now().Add(arrivalLimit+time.Second), arrivalLimit)
	late.awaitClosed()
	wantOK(t, idle.WritePing(false, [8]byte{}))
	idle.await("an answer to a ping", func(frame http2.Frame) bool { p, ok := frame.(*http2.PingFrame); return ok && p.IsAck() })
}

// The client sends one message a byte at a time, each in a frame, and another one in frames of a few bytes.
func TestManySmallFramesCloseTheConnection(t *testing.T) {
	f := startFront(t)
	const frames = 2 * smallFrames
	message := framed(t, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, frames*2*smallFrameBytes)})
	r := dialRaw(t, f.server.Addr(), 1<<20)
	stream := r.begin(pb.KV_Put_FullMethodName)
	for rest := message; len(rest) > 0; rest = rest[min(len(rest), 2*smallFrameBytes):] {
		wantOK(t, r.WriteData(stream, len(rest) <= 2*smallFrameBytes, rest[:min(len(rest), 2*smallFrameBytes)]))
	}
	r.await("an answer", func(frame http2.Frame) bool {
		h, ok := frame.(*http2.HeadersFrame)
		return ok && h.StreamEnded()
	})
	stream = r.begin(pb.KV_Put_FullMethodName)
	for i := range message[:frames] {
		if r.WriteData(stream, false, message[i:i+1]) != nil {
			break // the server has closed the connection
		}
	}
	r.awaitClosed()
}

// The client sends more bytes of requests than there is memory for.
func TestBytesOfOpenRequestsAreBounded(t *testing.T) {
	b := newBudget(160 << 10)
	a := b.begin(new(net.TCPConn))
	if err := a.take(requestBytes, 10<<10); err != nil {
		t.Fatal(err)
	}
	if err := a.take(requestBytes, 1); !errors.Is(err, admission.ErrRequestsWait) {
		t.Errorf("a connection takes more than its part: %v", err)
	}
	if err := b.internal.take(requestBytes, 10<<10); err != nil {
		t.Fatal(err)
	}
	if err := b.internal.take(requestBytes, 1); !errors.Is(err, admission.ErrNoRequests) {
		t.Errorf("all together take more than there is: %v", err)
	}
	a.close()
	if err := b.internal.take(requestBytes, 10<<10); err != nil {
		t.Errorf("a closed connection keeps its part: %v", err)
	}
	if err := a.take(requestBytes, 1); err == nil {
		t.Error("a closed connection takes more")
	}
}

// A small memory limit lowers the other limits. A large one does not change them.
func TestMemoryLimitLowersOtherLimits(t *testing.T) {
	little := Config{MemoryLimit: 128 << 20}.withDefaults()
	if little.MaxConnections != 1024 || little.MaxStreams != 4096 || little.MaxRequests != 4096 || little.MaxWatchers != 16384 {
		t.Errorf("with 128 MiB: %d connections, %d streams, %d requests, %d watchers",
			little.MaxConnections, little.MaxStreams, little.MaxRequests, little.MaxWatchers)
	}
	wantOK(t, little.Validate())
	much := Config{MemoryLimit: 16 << 30}.withDefaults()
	if much.MaxConnections != DefaultMaxConnections || much.MaxStreams != DefaultMaxStreams || much.MaxWatchers != DefaultMaxWatchers {
		t.Errorf("with 16 GiB: %d connections, %d streams, %d watchers", much.MaxConnections, much.MaxStreams, much.MaxWatchers)
	}
}

// However many streams ask for memory, the search for the connection that uses most takes a part of a core only.
func TestSearchForTheLargestAccountIsBounded(t *testing.T) {
	if began := time.Now(); nextSearch(began, began.Add(time.Second)).Sub(began) != (1+searchShare)*time.Second {
		t.Errorf("after a search of a second the next one begins %v after its begin", nextSearch(began, began.Add(time.Second)).Sub(began))
	}
	b := newBudget(1 << 30)
	first, second := b.begin(nil), b.begin(nil)
	p := &b.pools[answerBytes]
	search := func(next time.Time, want *account) {
		t.Helper()
		p.search.next = next
		if got := b.largest(answerBytes); got != want {
			t.Errorf("%p uses most, not %p", got, want)
		}
	}
	first.force(answerBytes, 100)
	search(time.Time{}, first)
	second.force(answerBytes, 200)
	search(time.Now().Add(time.Hour), first)
	search(time.Time{}, second)
}

// A connection that used most when it was looked for, and no longer does, is spared.
func TestAccountThatHasShrunkIsSpared(t *testing.T) {
	b := newBudget(1 << 30)
	server, client := net.Pipe()
	defer server.Close()
	defer client.Close()
	largest, asker := b.begin(server), b.begin(nil)
	p := &b.pools[answerBytes]
	largest.force(answerBytes, p.most)
	b.largest(answerBytes)
	p.search.next = time.Now().Add(time.Hour)
	b.evict(answerBytes, largest, 1)
	if largest.abandoned.Load() {
		t.Error("it closed itself")
	}
	largest.release(answerBytes, p.most-p.most/16)
	b.evict(answerBytes, asker, 1)
	if largest.abandoned.Load() {
		t.Error("it was closed for what it had used before")
	}
	largest.force(answerBytes, 1)
	b.evict(answerBytes, asker, 1)
	if !largest.abandoned.Load() {
		t.Error("it was not closed")
	}
}
