package main

import (
	"encoding/binary"
	"io"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// tally is a relay between clients and a server that counts what clients say. So it counts alike for every
// client library and every server.
type tally struct {
	*relay
	messages atomic.Int64 // of gRPC, from clients
	bytes    atomic.Int64 // from clients, all that is on the wire
}

func newTally(server string) (t *tally, err error) {
	t = &tally{}
	t.relay, err = newRelay(server,
		func(to io.Writer, from io.ReadCloser) error { return t.count(io.TeeReader(from, to)) },
		func(to io.Writer, from io.ReadCloser) error {
			_, err := io.Copy(to, from)
			return err
		})
	return t, err
}

// count reads the bytes of a client until the end.
func (t *tally) count(client io.Reader) error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(client, preface); err != nil {
		return err
	}
	framer := http2.NewFramer(io.Discard, client)
	framer.SetReuseFrames()
	parts := make(map[uint32]*part)
	const frameHeader = 9
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		t.bytes.Add(frameHeader + int64(f.Header().Length))
		id := f.Header().StreamID
		if data, ok := f.(*http2.DataFrame); ok {
			if parts[id] == nil {
				parts[id] = &part{}
			}
			t.messages.Add(parts[id].add(data.Data()))
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameRSTStream {
			delete(parts, id)
		}
	}
}

// part is the state of a message that has begun.
type part struct {
	prefix []byte // as much of it as there is
	left   int    // bytes of the message after it
}

// add takes more of a stream, and returns how many messages that completed.
func (p *part) add(data []byte) (complete int64) {
	for {
		if missing := messagePrefix - len(p.prefix); missing > 0 {
			n := min(missing, len(data))
			p.prefix, data = append(p.prefix, data[:n]...), data[n:]
			if n < missing {
				return complete
			}
			p.left = int(binary.BigEndian.Uint32(p.prefix[1:]))
		}
		n := min(p.left, len(data))
		p.left, data = p.left-n, data[n:]
		if p.left > 0 {
			return complete
		}
		complete++
		p.prefix = p.prefix[:0]
	}
}
