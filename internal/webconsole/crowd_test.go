package webconsole

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

const (
	// crowd is how many viewers come beyond the limits, and rush how many of them at a time.
	crowd, rush = 10_000, 16
	// crowdMemory bounds what the console allocates for the viewers that it serves and refuses, in bytes.
	crowdMemory = 64 << 20
	// patience bounds one exchange on a busy machine.
	patience = time.Minute
)

// renewed counts the renewals of a store.
type renewed struct {
	*memory.Backend
	times atomic.Int64
}

func (r *renewed) Renew(ctx context.Context, leases []backend.Lease, result func(int, backend.Renewal)) error {
	r.times.Add(1)
	return r.Backend.Renew(ctx, leases, result)
}

// onlooker is one connection to a console.
type onlooker struct {
	net.Conn
	in *bufio.Reader
}

func connect(t *testing.T, l net.Listener) *onlooker {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &onlooker{conn, bufio.NewReader(conn)}
}

// ask sends a request and returns the head of the answer.
func (v *onlooker) ask(target, cookie string) (*http.Response, error) {
	v.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(v, "GET %s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", target, v.RemoteAddr(), cookie); err != nil {
		return nil, err
	}
	return http.ReadResponse(v.in, nil)
}

// look asks for a picture, which a viewer within the limits gets.
func (v *onlooker) look(t *testing.T) {
	r, err := v.ask("/assets/icon.svg", "")
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("a viewer within the limits: %v", err)
	}
}

// refused asks for a page, and returns an error unless the answer is a refusal with the reason.
func refused(l net.Listener, target, cookie, reason string) error {
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	v := &onlooker{conn, bufio.NewReader(conn)}
	r, err := v.ask(target, cookie)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(string(text), reason) {
		return fmt.Errorf("%d %s", r.StatusCode, text)
	}
	return nil
}

// Ten thousand viewers beyond the limits are refused with the reason. Open pages stay live, a keeper on the same store loses
// nothing, and the console takes no more memory.
func TestCrowdOfViewersIsRefused(t *testing.T) {
	store := memory.New()
	kept := &renewed{Backend: store.Backend()}
	k, err := leasekeeper.New(kept, leasekeeper.WithTTL(15*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	lease, err := k.Acquire(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	l, c := serveStore(t, store.Backend())
	cookie := cookieName("console", &http.Request{Host: l.Addr().String()}) + "=" + c.keys.session
	streams := make([]*onlooker, 0, DefaultMaxPages)
	for range DefaultMaxPages {
		v := connect(t, l)
		defer v.Close()
		if r, err := v.ask("/updates?page=/names", cookie); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("an open page within the limit: %v, %v", r, err)
		}
		streams = append(streams, v)
	}
	if err := refused(l, "/updates?page=/", cookie, "as many pages are open"); err != nil {
		t.Errorf("one more page: %v", err)
	}
	served := make([]*onlooker, mostConnections-DefaultMaxPages)
	for i := range served {
		served[i] = connect(t, l)
		defer served[i].Close()
		served[i].look(t)
	}
	leave := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(leave)
	looking.Go(func() { // or the server would close their connections after a while
		for i := 0; ; i++ {
			select {
			case <-leave:
				return
			default:
				served[i%len(served)].look(t)
			}
		}
	})
	before := heap()
	var most atomic.Int64
	var coming sync.WaitGroup
	for range rush {
		coming.Go(func() {
			for range crowd / rush {
				if err := refused(l, "/", cookie, "as many connections open"); err != nil {
					t.Errorf("one more viewer: %v", err)
					return
				}
				most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			}
		})
	}
	coming.Wait()
	if after := heap(); after > before+crowdMemory {
		t.Errorf("the console took %d bytes, and %d after the crowd", before, after)
	}
	if n := most.Load(); n > 3*mostConnections {
		t.Errorf("%d goroutines", n)
	}
	for at := kept.times.Load(); kept.times.Load() < at+2; { // it goes on
		if lease.Context().Err() != nil {
			t.Fatalf("the keeper lost its lease: %v", context.Cause(lease.Context()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, _, err := kept.Claim(t.Context(), backend.Claim{ID: backend.ID{1}, Name: "new", Holder: backend.Holder{ID: "me"}, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for i, v := range streams {
		v.SetDeadline(time.Now().Add(patience))
		for line := ""; !strings.Contains(line, `1 more name`); {
			if line, err = v.in.ReadString('\n'); err != nil {
				t.Fatalf("open page %d is not live: %v", i, err)
			}
		}
	}
}

// heap returns the bytes of live objects.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
