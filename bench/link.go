package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// linkQueue is how many pieces may be on their way in one direction of a connection, and linkPiece how large
	// one is at most. So many fill no link that this machine can write to.
	linkQueue = 4096
	linkPiece = 64 << 10
	// linkTrips is how often a message goes there and back to see how long it takes.
	linkTrips = 50
)

// A piece holds the bytes of one read.
type piece struct {
	due  time.Time // when it is to arrive
	what []byte
}

// newLink is a relay to a member that delays what is said to it, and what it says, by the same time. What is on
// its way holds up nothing that follows: a link is long, not narrow.
func newLink(member string, delay time.Duration) (*relay, error) {
	pass := func(to io.Writer, from io.ReadCloser) error { return late(to, from, delay) }
	return newRelay(member, pass, pass)
}

// late writes each piece that it reads when the delay has passed since, and returns when the last one is written,
// or one cannot be; then it closes what it reads from.
func late(to io.Writer, from io.ReadCloser, delay time.Duration) error {
	pieces := make(chan piece, linkQueue)
	var unread error
	go func() {
		defer close(pieces)
		unread = readPieces(pieces, from, delay)
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.what); err != nil {
			from.Close()
			for range pieces { // the writer has failed: discard the rest
			}
			return err
		}
	}
	return unread
}

func readPieces(pieces chan<- piece, from io.Reader, delay time.Duration) error {
	buffer := make([]byte, linkPiece)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			pieces <- piece{time.Now().Add(delay), bytes.Clone(buffer[:n])}
		}
		if err != nil {
			return err
		}
	}
}

// measureLink returns how long a message takes there and back over a link.
func measureLink(ctx context.Context, delay time.Duration) (took []time.Duration, err error) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer echo.Close()
	work.Go(func() {
		conn, err := echo.Accept()
		if err != nil {
			return // it is closed
		}
		defer conn.Close()
		io.Copy(conn, conn)
	})
	l, err := newLink(echo.Addr().String(), delay)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", l.addr())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	message := make([]byte, 1)
	for range linkTrips {
		start := time.Now()
		if _, err := conn.Write(message); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}
