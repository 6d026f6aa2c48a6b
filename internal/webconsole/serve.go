package webconsole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds for one client of [Serve].
const (
	headerLimit = 5 * time.Second
	readLimit   = 30 * time.Second
	writeLimit  = 30 * time.Second
	idleLimit   = time.Minute
	mostHeader  = 32 << 10
	// mostConnections is how many connections are open at a time. A browser keeps up to six.
	mostConnections = 512
	// refusalLimit bounds the time to send the reason to a refused connection, and mostRefusals how many are being
	// refused at a time. Others are closed without a reason.
	refusalLimit = time.Second
	mostRefusals = 64
	stopLimit    = 3 * time.Second
)

const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\nConnection: close\r\n\r\n" +
	"the console has as many connections open as it may: try again\n"

// Listen returns a listener for a console without users: on loopback only, so that no other machine reaches it.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: write one like 127.0.0.1:8080", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not on loopback: the console of a store without users serves this machine only, so write 127.0.0.1 or ::1", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() { // localhost may be defined as another address
		return nil, errors.Join(fmt.Errorf("%q is %s, which is not on loopback", address, l.Addr()), l.Close())
	}
	return l, nil
}

// HostsOf returns the names by which browsers on this machine reach a listener on loopback.
func HostsOf(l net.Listener) []string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		panic(fmt.Sprintf("webconsole: the listener's address %q has no port", l.Addr()))
	}
	hosts := []string{net.JoinHostPort(host, port), net.JoinHostPort("localhost", port)}
	if port == "80" { // browsers leave it out
		hosts = append(hosts, host, "localhost")
	}
	return hosts
}

// Serve serves a console on a listener until ctx ends, and closes both.
func Serve(ctx context.Context, l net.Listener, c *Console) error {
	defer c.Close()
	bounded := &boundedListener{Listener: l, refusals: make(places, mostRefusals)}
	s := &http.Server{
		Handler: c, ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(c.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(bounded) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		c.stop() // ends the updates, which Shutdown would wait for
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if s.Shutdown(limit) != nil {
			s.Close()
		}
		<-failed
	}
	bounded.refusing.Wait()
	return err
}

// boundedListener refuses connections beyond a limit, with a reason.
type boundedListener struct {
	net.Listener
	open     atomic.Int64
	refusals places
	refusing sync.WaitGroup
}

// Accept implements [net.Listener].
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= mostConnections {
			return &countedConn{Conn: conn, open: &b.open}, nil
		}
		b.open.Add(-1)
		b.refuse(conn)
	}
}

// refuse sends the reason and closes the connection.
func (b *boundedListener) refuse(conn net.Conn) {
	if !b.refusals.take() {
		conn.Close()
		return
	}
	b.refusing.Go(func() {
		defer b.refusals.free()
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(refusalLimit))
		if _, err := conn.Write([]byte(refusal)); err != nil {
			return
		}
		// Closing a connection with unread input would discard the reason.
		var request [4 << 10]byte
		conn.Read(request[:]) // whatever comes: the answer is the same
	})
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
