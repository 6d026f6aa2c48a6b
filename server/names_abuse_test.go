package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// By etcd's recipe, one lease can wait for several names. A change of another name of its lease does not concern a
// claim.
func TestWaiterIgnoresOtherNamesOfItsLease(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("other/2"), Lease: 2})
	wantOK(t, err)
	wantEqual(t, "holder of the other name", f.info("other").Lease, 2)
	_, err = f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("other/2")})
	wantOK(t, err)
	f.release("n", 1)
	yours := waiting.next(leasekeeperv1.AcquireResponse_HELD)
	wantEqual(t, "token", yours.Token, f.info("n").Token)
	wantEqual(t, "holder", f.info("n").Lease, 2)
}

// usualMessage is the largest message that gRPC clients accept by default, in bytes.
const usualMessage = 4 << 20

// No message about names is larger than clients accept, however much there is to report.
func TestMessagesAboutNamesAreBounded(t *testing.T) {
	f := startFront(t)
	big := holder("me")
	big.Text, big.Host = strings.Repeat("x", backend.MaxCardText), strings.Repeat("h", backend.MaxHolderID)
	watch, _ := f.watchNames("")
	const names = 1000 // the most that a page has
	for i := range names {
		f.acquire(&leasekeeperv1.AcquireRequest{Name: fmt.Sprintf("n/%04d", i), TtlMs: 60_000, Holder: big}).next(leasekeeperv1.AcquireResponse_HELD)
	}
	listed, after := 0, ""
	for more := true; more; {
		resp, err := f.names().List(f.ctx(), &leasekeeperv1.ListRequest{After: after})
		wantOK(t, err)
		if size := proto.Size(resp); size > usualMessage {
			t.Fatalf("a page of %d names has %d bytes", len(resp.Names), size)
		}
		listed, more, after = listed+len(resp.Names), resp.More, resp.Last
	}
	wantEqual(t, "names listed", listed, names)
	for received := 0; received < names; {
		resp, err := watch.stream.Recv()
		wantOK(t, err)
		if size := proto.Size(resp); size > usualMessage {
			t.Fatalf("a message of %d events has %d bytes", len(resp.Events), size)
		}
		received += len(resp.Events)
	}
}

// A page that starts after the end of the requested range is empty.
func TestListAfterTheEndOfThePrefixIsEmpty(t *testing.T) {
	f := startFront(t)
	f.hold("b", 1, 60_000)
	for _, r := range []*leasekeeperv1.ListRequest{{Prefix: "a", After: "b"}, {Prefix: "b", After: "c"}, {Prefix: "b", After: "b"}} {
		resp, err := f.names().List(f.ctx(), r)
		wantOK(t, err)
		if len(resp.Names) > 0 || resp.More {
			t.Errorf("%v: %v", r, resp)
		}
	}
	resp, err := f.names().List(f.ctx(), &leasekeeperv1.ListRequest{Prefix: "b", After: "a"})
	wantOK(t, err)
	wantEqual(t, "names", len(resp.Names), 1)
}

// Each message of a JSON stream may be as large as a request, and no larger.
func TestHugeMessageOverHTTPIsRefused(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequestBytes = 64 << 10
	f := startWith(t, cfg, nil)
	f.hold("n", 1, 60_000)
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, "http://"+f.server.HTTPAddr()+"/v1/renew", body)
	wantOK(t, err)
	r.Header.Set("Content-Type", "application/json")
	space := strings.Repeat(" ", 32<<10)
	sent := make(chan int, 1)
	go func() {
		defer send.Close()
		for i := 1; i <= 100; i++ { // together more than one message may have
			fmt.Fprintf(send, `{"number": %d, "leases": [%s"1"]}`+"\n", i, space)
		}
		io.WriteString(send, `{"number": 101, "leases": [`)
		chunks := 0
		for ; chunks < 1<<12; chunks++ {
			if _, err := io.WriteString(send, space); err != nil {
				break
			}
		}
		sent <- chunks
	}()
	resp, err := http.DefaultClient.Do(r)
	wantOK(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	answers, n := bufio.NewReader(resp.Body), 0
	for {
		line, err := answers.ReadString('\n')
		if err != nil || strings.Contains(line, "error") {
			break
		}
		n++
	}
	if n > 100 || n < 90 {
		t.Errorf("%d answers", n)
	}
	resp.Body.Close()
	body.CloseWithError(io.ErrClosedPipe)
	if chunks := <-sent; chunks > 1<<8 {
		t.Errorf("the server read %d bytes of one message", chunks*len(space))
	}
}

// A name with its namespace may be longer than a name. It is listed and watched like others.
func TestLongNamesInNamespacesAreListedAndWatched(t *testing.T) {
	f := startFront(t)
	w, _ := f.watchNames("ns/")
	name := "ns/" + strings.Repeat("n", backend.MaxName)
	f.hold(name, 1, 60_000)
	w.next(leasekeeperv1.WatchEvent_ACQUIRED, name, 1)
	resp, err := f.names().List(f.ctx(), &leasekeeperv1.ListRequest{Prefix: "ns/"})
	wantOK(t, err)
	wantEqual(t, "names", len(resp.Names), 1)
	_, err = f.acquire(&leasekeeperv1.AcquireRequest{Name: "n//a", TtlMs: 1000, Holder: holder("me")}).stream.Recv()
	wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
}

// The server does not wait for a client that never finishes its request, although the answer has no time limit.
func TestSlowRequestBodyOverHTTPTimesOut(t *testing.T) {
	node := startNode(t)
	s, err := newServer(anyPort(), node)
	wantOK(t, err)
	s.http.ReadTimeout = 300 * time.Millisecond
	wantOK(t, s.Start())
	defer func() { wantOK(t, s.Stop(limited(t, context.Background()))) }()
	f := &front{t: t, node: node, server: s, conn: dial(t, s.Addr())}
	for _, path := range []string{"/v1/acquire", "/v1/watch"} {
		conn, err := net.Dial("tcp", f.server.HTTPAddr())
		wantOK(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path)
		wantOK(t, conn.SetReadDeadline(time.Now().Add(waitLimit/4)))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%s: the connection stays: %v", path, err)
		}
	}
	f.hold("n", 1, 60_000)
	waiting := bufio.NewReader(f.post("/v1/acquire", `{"name": "n", "ttlMs": "60000", "wait": true}`).Body)
	jsonLine(t, waiting)
	time.Sleep(2 * f.server.http.ReadTimeout) // this bounds only the reading of requests
	f.release("n", 1)
	if yours := jsonLine(t, waiting); yours["state"] != "HELD" {
		t.Errorf("its turn: %v", yours)
	}
}
