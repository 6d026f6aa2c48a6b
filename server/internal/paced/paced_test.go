package paced

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// serve serves handle with a paced writer, over HTTP/1.1 and HTTP/2, and passes on what it returns.
func serve(t *testing.T, version2 bool, handle func(w http.ResponseWriter) error) (s *httptest.Server, stop context.CancelFunc, returned chan error) {
	serving, stop := context.WithCancel(t.Context())
	returned = make(chan error, 1)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		paced, end := NewWriter(w, serving)
		defer end()
		returned <- handle(paced)
	}))
	s.EnableHTTP2 = version2
	s.StartTLS()
	t.Cleanup(func() {
		stop()
		s.CloseClientConnections()
		s.Close()
	})
	return s, stop, returned
}

func eachVersion(t *testing.T, test func(t *testing.T, version2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { test(t, true) })
}

func TestStopEndsAWriteToAClientThatReadsNothing(t *testing.T) {
	eachVersion(t, func(t *testing.T, version2 bool) {
		s, stop, returned := serve(t, version2, func(w http.ResponseWriter) (err error) {
			for piece := make([]byte, 1<<20); err == nil; {
				_, err = w.Write(piece)
			}
			return err
		})
		resp, err := s.Client().Get(s.URL) // returns when the answer has begun
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		began := time.Now()
		stop()
		if err := <-returned; err == nil {
			t.Error("the write did not fail")
		}
		if took := time.Since(began); took > PieceLimit/2 {
			t.Errorf("the stop waited %v for the client, which has %v", took, StopLimit)
		}
	})
}

// A stop lets a client that reads have the rest.
func TestClientHasTimeToReadTheRestAfterAStop(t *testing.T) {
	eachVersion(t, func(t *testing.T, version2 bool) {
		begun, stopped := make(chan struct{}), make(chan struct{})
		want := bytes.Repeat([]byte("abc"), 100_000)
		s, stop, returned := serve(t, version2, func(w http.ResponseWriter) error {
			_, err := w.Write(want[:10])
			err = errors.Join(err, http.NewResponseController(w).Flush())
			close(begun)
			<-stopped
			_, rest := w.Write(want[10:])
			return errors.Join(err, rest)
		})
		go func() {
			<-begun
			stop()
			close(stopped)
		}()
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, <-returned); err != nil || !bytes.Equal(got, want) {
			t.Errorf("received %d of %d bytes: %v", len(got), len(want), err)
		}
	})
}

// A pause of the server after a flush does not count against the client.
func TestFlushEndsTheTimeOfAPiece(t *testing.T) {
	w := &deadlines{ResponseWriter: httptest.NewRecorder()}
	p, end := NewWriter(w, t.Context())
	if err := p.FlushError(); err != nil {
		t.Fatal(err)
	}
	if len(w.set) != 2 || w.set[0].IsZero() || !w.set[1].IsZero() {
		t.Errorf("the deadlines were %v", w.set)
	}
	if _, err := p.Write(make([]byte, 3*pieceBytes)); err != nil {
		t.Fatal(err)
	}
	end()
	if len(w.set) != 2+3+1 || w.set[5].IsZero() {
		t.Errorf("the deadlines were %v, and not one for each piece and one for what net/http sends", w.set)
	}
	w.err = os.ErrDeadlineExceeded
	if _, err := p.Write([]byte("a")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write on a connection that is being closed: %v", err)
	}
	if err := p.FlushError(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a flush: %v", err)
	}
}

// deadlines is a response whose deadlines a test sees.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
	err error
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return d.err
}

func (d *deadlines) FlushError() error { return d.err }
