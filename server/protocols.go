package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/opening"
)

const (
	// protocolBytes bounds what the server reads of a connection before it knows whether the connection carries gRPC.
	protocolBytes = 16 << 10
	// protocolLimit bounds how long the server waits for the first request of an HTTP/2 connection before it regards the
	// connection as one of gRPC.
	protocolLimit = 5 * time.Second
	// protocolBuffer is the size in bytes of the buffer with which the server reads meanwhile.
	protocolBuffer = 4 << 10
)

// protocols decides what a new connection on the client port carries. gRPC's own transport serves gRPC, and net/http the
// rest. One connection carries only one of them.
//
//   - Without TLS, a connection that does not begin with the preface of HTTP/2 is one of HTTP/1.
//   - With TLS, the client must also have agreed on HTTP/2 by ALPN.
//   - The first request of an HTTP/2 connection says by its content type whether the connection carries gRPC.
//
// Clients of gRPC send no request before they have received the settings of the server. So the server sends settings
// after the preface. They limit what the client sends until the transport sends its own settings.
//
// A client that opens a connection before it needs it sends no request either. After protocolLimit such a connection
// counts as one of gRPC, whose clients are the ones that do so.
//
// gRPC calls ServerHandshake on a goroutine of its own for each connection, for at most handshakeLimit.
type protocols struct {
	credentials.TransportCredentials // for everything but handshakes

	secure *onlyTLS // nil without TLS
	http   *opening.Handed
	life   *lifetime.Lifetime
	// hello is the frame with the settings that precede the transport's.
	hello []byte
}

func newProtocols(secure *onlyTLS, maxStreams int, http *opening.Handed, life *lifetime.Lifetime) (*protocols, error) {
	p := &protocols{TransportCredentials: insecure.NewCredentials(), secure: secure, http: http, life: life}
	if secure != nil {
		p.TransportCredentials = secure.TransportCredentials
	}
	var hello strings.Builder
	err := http2.NewFramer(&hello, nil).WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(maxStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderBytes},
	)
	p.hello = []byte(hello.String())
	return p, err
}

// Clone implements [credentials.TransportCredentials].
func (p *protocols) Clone() credentials.TransportCredentials {
	return new(*p)
}

// ServerHandshake implements [credentials.TransportCredentials]. It returns a connection of gRPC, or hands the connection
// to the HTTP server and returns [credentials.ErrConnDispatched].
func (p *protocols) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	client := raw.(*clientConn) // boundedListener.wrap makes them
	// gRPC waits for handshakes when it stops.
	leave := context.AfterFunc(p.life.Context(), func() { client.countedConn.SetReadDeadline(time.Unix(1, 0)) })
	defer leave()
	conn := net.Conn(client.countedConn)
	var info credentials.AuthInfo
	var state *tls.ConnectionState
	if p.secure != nil {
		secured, err := p.secure.handshake(conn)
		if err != nil {
			return nil, nil, err
		}
		s := secured.ConnectionState()
		conn, state = secured, &s
		over := credentials.TLSInfo{State: s}
		over.SecurityLevel = credentials.PrivacyAndIntegrity
		info = over
	}
	conn, isGRPC, err := p.tell(conn, state, client.decided)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if isGRPC {
		// gRPC's transport has the rest of the time to begin.
		return newMetered(conn), info, p.readUntil(client.countedConn, client.decided)
	}
	client.handed.Store(true)
	client.countedConn.SetDeadline(time.Time{})
	p.http.Hand(&httpConn{Conn: conn, account: client.addr.account, state: state})
	return nil, nil, credentials.ErrConnDispatched
}

// readUntil sets the end of reading, unless the server stops. That has already set an end, which this one would replace.
func (p *protocols) readUntil(conn net.Conn, t time.Time) error {
	if err := conn.SetReadDeadline(t); err != nil {
		return err
	}
	if p.life.Err() != nil {
		return lifetime.ErrStopping
	}
	return nil
}

var errNoALPN = errors.New("the client speaks HTTP/2 and has not agreed on it (ALPN): configure it for gRPC")

// tell reports whether a connection carries gRPC. The returned connection yields what tell has read. state is nil without
// TLS. tell waits until end at most.
func (p *protocols) tell(conn net.Conn, state *tls.ConnectionState, end time.Time) (all net.Conn, isGRPC bool, err error) {
	if err := p.readUntil(conn, end); err != nil {
		return conn, false, err
	}
	seen := opening.Record(conn, protocolBytes)
	in := bufio.NewReaderSize(seen, protocolBuffer)
	if is2, err := opening.StartsWithPreface(in); err != nil || !is2 {
		return opening.Replay(conn, seen.Bytes()), false, err
	}
	if state != nil && state.NegotiatedProtocol != http2.NextProtoTLS {
		return conn, false, errNoALPN
	}
	if until := time.Now().Add(protocolLimit); until.Before(end) {
		end = until
	}
	_, err = conn.Write(p.hello)
	if err := errors.Join(err, p.readUntil(conn, end)); err != nil {
		return conn, false, err
	}
	content, err := opening.FirstContentType(in, protocolBytes)
	all = opening.Replay(conn, seen.Bytes())
	switch {
	case err == nil && !strings.HasPrefix(content, "application/grpc"):
		return opening.WithoutFirstAck(all), false, nil
	case p.life.Err() != nil:
		return all, false, lifetime.ErrStopping
	case errors.Is(err, io.EOF) && !seen.Full():
		return all, false, io.EOF // the client has gone
	}
	// Everything else is gRPC, or gRPC's transport refuses it.
	return all, true, nil
}

// clientConn is a connection on the client port, as gRPC knows it.
type clientConn struct {
	*countedConn
	// decided is when the connection must carry a protocol.
	decided time.Time
	// handed is set when the connection belongs to the HTTP server. gRPC then no longer changes its deadlines.
	handed atomic.Bool
}

// SetDeadline implements [net.Conn].
func (c *clientConn) SetDeadline(t time.Time) error {
	if c.handed.Load() {
		return nil
	}
	return c.countedConn.SetDeadline(t)
}

// httpConn is a connection on the client port that the HTTP server serves.
type httpConn struct {
	net.Conn
	account *account
	state   *tls.ConnectionState // nil without TLS
}

// SetDeadline implements [net.Conn]. It keeps the deadline with which the server closes a connection because of its use.
func (c *httpConn) SetDeadline(t time.Time) error {
	return c.unlessAbandoned(t, c.Conn.SetDeadline)
}

// SetReadDeadline implements [net.Conn].
func (c *httpConn) SetReadDeadline(t time.Time) error {
	return c.unlessAbandoned(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements [net.Conn].
func (c *httpConn) SetWriteDeadline(t time.Time) error {
	return c.unlessAbandoned(t, c.Conn.SetWriteDeadline)
}

func (c *httpConn) unlessAbandoned(t time.Time, set func(time.Time) error) error {
	if err := set(t); err != nil {
		return err
	}
	if c.account.abandoned.Load() { // looked at after the change, so that neither order of the two loses the end
		return errors.Join(c.Conn.SetDeadline(time.Unix(1, 0)), os.ErrDeadlineExceeded)
	}
	return nil
}
