package server

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// A meter follows the frames of HTTP/2 on one connection in both directions, as far as it takes to know which requests
// are open, and what of them has been received that makes no whole message yet. gRPC tells nobody of that, and bounds it
// only by the number of streams.
type meter struct {
	account  *account
	in, out  frames
	mu       sync.Mutex
	requests map[uint32]*openRequest
	resets   int // requests that either side has reset and that were not charged yet; guarded by mu

	resetting bool // some were charged; only for who reads the connection
}

// openRequest is a stream whose answer has not ended.
type openRequest struct {
	unread int64     // counted in the account
	since  time.Time // when the message that is not complete began; zero if none has
	prefix [5]byte   // of the message
	has    int       // bytes of prefix
	left   int64     // bytes of the message behind the prefix
	frames int64     // of the message that is not complete
}

const (
	// frameCost is about how much memory a frame of DATA takes besides its payload until its message is complete.
	frameCost = 96
	// crumbs is how many frames of one message may come before they must hold crumbBytes each on average. A client that
	// sends less at a time makes the server work for nothing, and is closed.
	crumbs, crumbBytes = 256, 16
	// maxFollowed bounds the requests of one connection that are followed. gRPC refuses streams before.
	maxFollowed = 1 << 17
)

// Frames and their flags, as HTTP/2 numbers them.
const (
	frameHeaderBytes = 9

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 1
	flagPadded    = 8
)

// prefaceBytes is the length of what a client sends before its first frame.
const prefaceBytes = 24

// frames splits one direction of a connection into frames.
type frames struct {
	skip   int64 // bytes before the next header
	header [frameHeaderBytes]byte
	has    int // bytes of header

	// Of a frame of DATA.
	stream uint32
	data   int64 // bytes of it that are to come, without padding
	pad    bool  // the next byte tells how much padding there is
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
	return &meter{account: a, in: frames{skip: prefaceBytes}, requests: make(map[uint32]*openRequest)}
}

// received follows what the client has sent.
func (m *meter) received(p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in.follow(p, m.clientFrame, m.clientData)
}

// sent follows what the server sends.
func (m *meter) sent(p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.follow(p, m.serverFrame, nil)
}

// close forgets all requests. The account forgets what they count by itself.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account.addOpen(-int64(len(m.requests)))
	m.requests = nil
}

// follow calls frame for the header of each frame in p, and data for the payload of DATA, in pieces.
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

// clientFrame follows a frame of the client. m.mu is held.
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
			if r.frames++; r.frames > crumbs && r.unread < r.frames*(frameCost+crumbBytes) {
				m.account.abandon()
			}
		}
	case frameReset:
		m.reset(stream)
	}
}

// clientData follows what the client sends as part of a message. m.mu is held.
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
			// The message is complete, and from now on gRPC's, which bounds what of a stream nobody has read.
			m.count(r, -r.unread)
			r.has, r.since, r.frames = 0, time.Time{}, 0
		}
	}
}

// serverFrame follows a frame of the server. m.mu is held.
func (m *meter) serverFrame(kind, flags byte, stream uint32) {
	switch {
	case kind == frameReset:
		m.reset(stream)
	case (kind == frameHeaders || kind == frameData) && flags&flagEndStream != 0:
		m.forget(stream)
	}
}

// reset ends a request that has no answer. m.mu is held.
func (m *meter) reset(stream uint32) {
	if m.requests[stream] != nil {
		m.resets++
	}
	m.forget(stream)
}

// forget ends a request. m.mu is held.
func (m *meter) forget(stream uint32) {
	if r := m.requests[stream]; r != nil {
		m.count(r, -r.unread)
		delete(m.requests, stream)
		m.account.addOpen(-1)
	}
}

// count counts bytes that make no whole message. m.mu is held.
func (m *meter) count(r *openRequest, n int64) {
	if n != 0 {
		r.unread += n
		m.account.addUnread(n)
	}
}

// oldest returns since when the connection owes the rest of a message; zero if it owes nothing.
func (m *meter) oldest() (since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests { // order: the least is sought
		if !r.since.IsZero() && (since.IsZero() || r.since.Before(since)) {
			since = r.since
		}
	}
	return since
}

// addOpen counts requests that are open.
func (a *account) addOpen(n int64) {
	a.open.Add(n)
	a.budget.open.Add(n)
}

// addUnread counts bytes that make no whole message. A connection with too many is closed; if there are too many on all
// connections, it is the one with most.
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

// mostUnread returns the account with most unread bytes, the given one if there is no other.
func (b *budget) mostUnread(a *account) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.accounts { // order: the largest is sought
		if other.unread.Load() > a.unread.Load() {
			a = other
		}
	}
	return a
}
