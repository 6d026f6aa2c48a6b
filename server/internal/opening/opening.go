package opening

import (
	"bufio"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// PrefaceBytes is the number of bytes that a client of HTTP/2 sends before its first frame.
const PrefaceBytes = 24

// StartsWithPreface reports whether a client begins with the preface of HTTP/2. It reads no more of the client than
// needed.
func StartsWithPreface(in *bufio.Reader) (bool, error) {
	for n := 1; n <= PrefaceBytes; n++ {
		begin, err := in.Peek(n)
		if err != nil {
			return false, err
		}
		if begin[n-1] != http2.ClientPreface[n-1] {
			return false, nil
		}
	}
	_, err := in.Discard(PrefaceBytes)
	return true, err
}

// FirstContentType returns the content type of the first request on an HTTP/2 connection whose preface has been read. limit
// bounds the bytes of a frame and of the request's header.
func FirstContentType(in io.Reader, limit uint32) (string, error) {
	framer := http2.NewFramer(io.Discard, in)
	framer.SetMaxReadFrameSize(limit)
	framer.MaxHeaderListSize = limit
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

// A Recorder reads, and keeps what it has read. Make one with [Record].
type Recorder struct {
	from  io.LimitedReader
	bytes []byte
}

// Record makes a Recorder that reads at most limit bytes.
func Record(from io.Reader, limit int64) *Recorder {
	return &Recorder{from: io.LimitedReader{R: from, N: limit}}
}

// Read implements [io.Reader].
func (r *Recorder) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.bytes = append(r.bytes, p[:n]...)
	return n, err
}

// Bytes returns what was read. The caller owns it once the Recorder reads no more.
func (r *Recorder) Bytes() []byte { return r.bytes }

// Full reports whether the Recorder has read as much as it may.
func (r *Recorder) Full() bool { return r.from.N <= 0 }

// replayed is a connection that yields bytes which were already read, before it reads on.
type replayed struct {
	net.Conn
	bytes []byte
}

// Replay returns a connection that yields bytes which were already read of conn, before it reads on. It owns the bytes.
func Replay(conn net.Conn, bytes []byte) net.Conn { return &replayed{conn, bytes} }

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

// ackless is a connection without the client's first acknowledgement of settings.
type ackless struct {
	net.Conn
	left   int64 // bytes before the next header of a frame; at first those of the preface
	header [frameHeaderBytes]byte
	has    int    // bytes received of header
	out    []byte // the part of header that was received and not yet returned
	gone   bool   // the acknowledgement was removed
}

// WithoutFirstAck returns an HTTP/2 connection without the client's first acknowledgement of settings. conn yields the preface
// first. A server that has sent settings before it gives the connection to net/http needs this, because net/http regards the
// acknowledgement of settings that it has not sent as an error.
func WithoutFirstAck(conn net.Conn) net.Conn {
	return &ackless{Conn: conn, left: PrefaceBytes}
}

const (
	frameHeaderBytes = 9
	frameSettings    = 4
	flagAck          = 1
)

// Read implements [net.Conn].
func (w *ackless) Read(p []byte) (int, error) {
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
