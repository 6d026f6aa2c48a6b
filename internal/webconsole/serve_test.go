package webconsole

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestListenOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "[::]:0", "example.com:0", "127.0.0.1"} {
		if l, err := Listen(address); err == nil {
			l.Close()
			t.Errorf("%s is served", address)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := Listen(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if hosts := strings.Join(HostsOf(l), " "); !strings.Contains(hosts, "localhost:"+port) {
			t.Errorf("the hosts of %s are %s", address, hosts)
		}
		l.Close()
	}
}

// serve serves a console until the test ends.
func serve(t *testing.T) net.Listener {
	l, _ := serveStore(t, memory.New().Backend())
	return l
}

// serveStore serves a console on a store until the test ends.
func serveStore(t *testing.T, store backend.Backend) (net.Listener, *Console) {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Store: store, Hosts: HostsOf(l)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- Serve(ctx, l, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l, c
}

// Connections beyond the limit are refused with a reason, and have a place again when others are closed.
func TestConnectionsAreLimited(t *testing.T) {
	l := serve(t)
	ask := func() (code int, body string) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.WriteString(conn, "GET /assets/icon.svg HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	if code, _ := ask(); code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	idle := make([]net.Conn, 0, mostConnections)
	for range mostConnections {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	if code, body := ask(); code != http.StatusServiceUnavailable || !strings.Contains(body, "as many connections open as it may") {
		t.Errorf("beyond the limit: %d %s", code, body)
	}
	for _, conn := range idle {
		conn.Close()
	}
	for code := 0; code != http.StatusOK; code, _ = ask() { // the server notices the end of a connection in its own time
		if t.Context().Err() != nil {
			t.Fatal("the places stay taken")
		}
	}
}
