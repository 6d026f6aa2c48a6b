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
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
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
	http   *handedListener
	life   *lifetime.Lifetime
	// hello is the frame with the settings that precede the transport's.
	hello []byte
}

func newProtocols(secure *onlyTLS, maxStreams int, http *handedListener, life *lifetime.Lifetime) (*protocols, error) {
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
	clone := *p
	return &clone
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
	p.http.hand(&httpConn{Conn: conn, account: client.addr.account, state: state})
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
	seen := &recorder{from: io.LimitedReader{R: conn, N: protocolBytes}}
	in := bufio.NewReaderSize(seen, protocolBuffer)
	if is2, err := startsWithPreface(in); err != nil || !is2 {
		return &replayed{conn, seen.bytes}, false, err
	}
	if state != nil && state.NegotiatedProtocol != http2.NextProtoTLS {
		return conn, false, errNoALPN
	}
	if _, err := conn.Write(p.hello); err != nil {
		return conn, false, err
	}
	if until := time.Now().Add(protocolLimit); until.Before(end) {
		end = until
	}
	if err := p.readUntil(conn, end); err != nil {
		return conn, false, err
	}
	content, err := firstContentType(in)
	all = &replayed{conn, seen.bytes}
	switch {
	case err == nil && !strings.HasPrefix(content, "application/grpc"):
		return &withoutFirstAck{Conn: all, left: prefaceBytes}, false, nil
	case p.life.Err() != nil:
		return all, false, lifetime.ErrStopping
	case errors.Is(err, io.EOF) && seen.from.N > 0:
		return all, false, io.EOF // the client has gone
	}
	// Everything else is gRPC, or gRPC's transport refuses it.
	return all, true, nil
}

// startsWithPreface reports whether a client begins with the preface of HTTP/2. It reads no more of the client than
// needed.
func startsWithPreface(in *bufio.Reader) (bool, error) {
	for n := 1; n <= prefaceBytes; n++ {
		begin, err := in.Peek(n)
		if err != nil {
			return false, err
		}
		if begin[n-1] != http2.ClientPreface[n-1] {
			return false, nil
		}
	}
	_, err := in.Discard(prefaceBytes)
	return true, err
}

// firstContentType returns the content type of the first request on an HTTP/2 connection.
func firstContentType(in io.Reader) (string, error) {
	framer := http2.NewFramer(io.Discard, in)
	framer.SetMaxReadFrameSize(protocolBytes)
	framer.MaxHeaderListSize = protocolBytes
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return "", err
		}
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok {
			for _, field := range headers.RegularFields() {
				if field.Name == "content-type" {
					return field.Value, nil
				}
			}
			return "", nil
		}
	}
}

// recorder reads, and keeps what it has read.
type recorder struct {
	from  io.LimitedReader
	bytes []byte
}

// Read implements [io.Reader].
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.bytes = append(r.bytes, p[:n]...)
	return n, err
}

// replayed is a connection that yields bytes which were already read, before it reads on.
type replayed struct {
	net.Conn
	bytes []byte
}

// Read implements [net.Conn].
func (r *replayed) Read(p []byte) (int, error) {
	if len(r.bytes) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.bytes)
	if r.bytes = r.bytes[n:]; len(r.bytes) == 0 {
		r.bytes = nil
	}
	return n, nil
}

// withoutFirstAck is an HTTP/2 connection without the client's first acknowledgement of settings. That one answers the
// settings of protocols, and net/http regards an acknowledgement of settings that it has not sent as an error.
type withoutFirstAck struct {
	net.Conn
	left   int64 // bytes before the next header of a frame; at first those of the preface
	header [frameHeaderBytes]byte
	has    int    // bytes received of header
	out    []byte // the part of header that was received and not yet returned
	gone   bool   // the acknowledgement was removed
}

const (
	frameSettings = 4
	flagAck       = 1
)

// Read implements [net.Conn].
func (w *withoutFirstAck) Read(p []byte) (int, error) {
	for {
		switch {
		case len(p) == 0:
			return 0, nil
		case len(w.out) > 0:
			n := copy(p, w.out)
			w.out = w.out[n:]
			return n, nil
		case w.gone:
			return w.Conn.Read(p)
		case w.left > 0:
			n, err := w.Conn.Read(p[:min(int64(len(p)), w.left)])
			w.left -= int64(n)
			return n, err
		}
		n, err := w.Conn.Read(w.header[w.has:])
		if w.has += n; w.has == frameHeaderBytes {
			w.has = 0
			if w.gone = w.header[3] == frameSettings && w.header[4]&flagAck != 0; !w.gone {
				w.out = w.header[:]
				w.left = int64(w.header[0])<<16 | int64(w.header[1])<<8 | int64(w.header[2])
			}
			continue
		}
		if err != nil {
			return 0, err
		}
	}
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
