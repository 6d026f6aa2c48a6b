package server

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/server/internal/opening"
)

// meter follows the HTTP/2 frames of one connection in both directions. From them it knows the open requests, and the
// received bytes of incomplete messages. gRPC does not report either, and bounds them only by the number of streams.
type meter struct {
	account  *account
	in, out  frames
	mu       sync.Mutex
	requests map[uint32]*openRequest
	resets   int // requests that either side has reset and that the reset limiter has not counted; guarded by mu

	resetting bool // the reset limiter has counted some; used only by the reader of the connection
}

// openRequest is a stream whose answer has not ended. The meter's mu guards it.
type openRequest struct {
	unread int64     // bytes of the incomplete message, counted in the account
	since  time.Time // when the incomplete message began; zero if there is none
	prefix [5]byte   // of the message
	has    int       // bytes received of prefix
	left   int64     // bytes still to come after the prefix
	frames int64     // number of frames of the incomplete message
}

const (
	// frameCost is about how many bytes of memory a DATA frame takes, besides its payload, until its message is
	// complete.
	frameCost = 96
	// smallFrames is the number of frames that a message may have before they must average smallFrameBytes each. A
	// client that sends less at a time causes needless work, so its connection is closed.
	smallFrames, smallFrameBytes = 256, 16
	// maxFollowed bounds the requests that the meter follows on one connection. gRPC refuses streams before that.
	maxFollowed = 1 << 17
)

// Types and flags of frames, as HTTP/2 numbers them.
const (
	frameHeaderBytes = 9

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 1
	flagPadded    = 8
)

// frames splits one direction of a connection into frames.
type frames struct {
	skip   int64 // bytes before the next header
	header [frameHeaderBytes]byte
	has    int // bytes received of header

	// The fields below are those of a DATA frame.
	stream uint32
	data   int64 // payload bytes still to come, without padding
	pad    bool  // the next byte is the length of the padding
}

// metered is a connection whose frames its meter follows.
type metered struct {
	net.Conn
	meter *meter
}

// newMetered returns conn itself if it has no account.
func newMetered(conn net.Conn) net.Conn {
	if addr, ok := conn.RemoteAddr().(*clientAddr); ok {
		return &metered{conn, addr.account.meter}
	}
	return conn
}

// Read implements [net.Conn].
func (c *metered) Read(p []byte) (int, error) {
	p = c.meter.next(p)
	n, err := c.Conn.Read(p)
	c.meter.received(p[:n])
	c.meter.afterResets()
	return n, err
}

// Write implements [net.Conn].
func (c *metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.sent(p[:n])
	return n, err
}

func newMeter(a *account) *meter {
	return &meter{account: a, in: frames{skip: opening.PrefaceBytes}, requests: make(map[uint32]*openRequest)}
}

// received follows bytes from the client.
func (m *meter) received(p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in.follow(p, m.clientFrame, m.clientData)
}

// sent follows bytes to the client.
func (m *meter) sent(p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.follow(p, m.serverFrame, nil)
}

// close forgets all requests. The account releases their bytes itself.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account.addOpen(-int64(len(m.requests)))
	m.requests = nil
}

// follow calls frame for the header of each frame in p, and data for each piece of a DATA frame's payload.
func (f *frames) follow(p []byte, frame func(kind, flags byte, stream uint32), data func(stream uint32, p []byte)) {
	for len(p) > 0 {
		switch {
		case f.pad:
			f.data, f.pad = max(0, f.data-1-int64(p[0])), false
			f.skip--
			p = p[1:]
		case f.data > 0 && data != nil:
			n := min(int64(len(p)), f.data)
			data(f.stream, p[:n])
			f.data -= n
			f.skip -= n
			p = p[n:]
		case f.skip > 0:
			n := min(int64(len(p)), f.skip)
			f.skip -= n
			p = p[n:]
		default:
			n := copy(f.header[f.has:], p)
			f.has += n
			p = p[n:]
			if f.has < frameHeaderBytes {
				return
			}
			f.has = 0
			length := int64(f.header[0])<<16 | int64(f.header[1])<<8 | int64(f.header[2])
			kind, flags := f.header[3], f.header[4]
			f.stream = binary.BigEndian.Uint32(f.header[5:]) & (1<<31 - 1)
			f.skip, f.data = length, 0
			if kind == frameData {
				f.data = length
				f.pad = flags&flagPadded != 0 && length > 0
			}
			frame(kind, flags, f.stream)
		}
	}
}

// clientFrame follows a frame from the client. The caller holds m.mu.
func (m *meter) clientFrame(kind, _ byte, stream uint32) {
	switch kind {
	case frameHeaders:
		if m.requests != nil && m.requests[stream] == nil && len(m.requests) < maxFollowed {
			m.requests[stream] = new(openRequest)
			m.account.addOpen(1)
		}
	case frameData:
		if r := m.requests[stream]; r != nil {
			m.count(r, frameCost)
			if r.frames++; r.frames > smallFrames && r.unread < r.frames*(frameCost+smallFrameBytes) {
				m.account.abandon()
			}
		}
	case frameReset:
		m.reset(stream)
	}
}

// clientData follows payload from the client. The caller holds m.mu.
func (m *meter) clientData(stream uint32, p []byte) {
	r := m.requests[stream]
	if r == nil {
		return
	}
	m.count(r, int64(len(p)))
	for len(p) > 0 {
		if r.has < len(r.prefix) {
			if r.has == 0 {
				r.since = time.Now()
			}
			n := copy(r.prefix[r.has:], p)
			r.has += n
			p = p[n:]
			r.left = int64(binary.BigEndian.Uint32(r.prefix[1:]))
		} else {
			n := min(int64(len(p)), r.left)
			r.left -= n
			p = p[n:]
		}
		if r.has == len(r.prefix) && r.left == 0 {
			// The message is complete, and gRPC takes it. From now on gRPC bounds the unread messages of a stream.
			m.count(r, -r.unread)
			r.has, r.since, r.frames = 0, time.Time{}, 0
		}
	}
}

// serverFrame follows a frame from the server. The caller holds m.mu.
func (m *meter) serverFrame(kind, flags byte, stream uint32) {
	switch {
	case kind == frameReset:
		m.reset(stream)
	case (kind == frameHeaders || kind == frameData) && flags&flagEndStream != 0:
		m.forget(stream)
	}
}

// reset ends a request without an answer. The caller holds m.mu.
func (m *meter) reset(stream uint32) {
	if m.requests[stream] != nil {
		m.resets++
	}
	m.forget(stream)
}

// forget ends a request. The caller holds m.mu.
func (m *meter) forget(stream uint32) {
	if r := m.requests[stream]; r != nil {
		m.count(r, -r.unread)
		delete(m.requests, stream)
		m.account.addOpen(-1)
	}
}

// count adds n bytes to the incomplete message of r. The caller holds m.mu.
func (m *meter) count(r *openRequest, n int64) {
	if n != 0 {
		r.unread += n
		m.account.addUnread(n)
	}
}

// oldest returns when the oldest incomplete message began; zero if there is none.
func (m *meter) oldest() (since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests { // order: finds the least
		if !r.since.IsZero() && (since.IsZero() || r.since.Before(since)) {
			since = r.since
		}
	}
	return since
}

// addOpen adds n to the open requests.
func (a *account) addOpen(n int64) {
	a.open.Add(n)
	a.budget.open.Add(n)
}

// addUnread adds n to the bytes of incomplete messages. It closes a connection that has too many. If all connections
// together have too many, it closes the one with the most.
func (a *account) addUnread(n int64) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	own, all := a.unread.Add(n), a.budget.unread.Add(n)
	a.mu.Unlock()
	switch {
	case n < 0:
	case own > a.budget.unreadEach:
		a.abandon()
	case all > a.budget.unreadMost:
		a.budget.mostUnread(a).abandon()
	}
}

// mostUnread returns the account with the most unread bytes; a if no other has more.
func (b *budget) mostUnread(a *account) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.accounts { // order: finds the largest
		if other.unread.Load() > a.unread.Load() {
			a = other
		}
	}
	return a
}
