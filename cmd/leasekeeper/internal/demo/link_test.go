package demo

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo starts a server that answers with what it receives, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// dial returns a connection through a link, with a limit for all that it does.
func dial(t *testing.T, l *link) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// answers sends one byte and returns the error of reading it back.
func answers(conn net.Conn) error {
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func TestCutLinkForwardsNothingUntilItIsMended(t *testing.T) {
	l, err := newLink(t.Context(), []string{echo(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	conn := dial(t, l)
	if err := answers(conn); err != nil {
		t.Fatal(err)
	}
	l.cut()
	during := dial(t, l)
	for _, c := range []net.Conn{conn, during} {
		c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		if err := answers(c); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("through a cut link: %v, want silence", err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	l.mend()
	for _, c := range []net.Conn{conn, during} {
		if err := answers(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection from before: %v, want its end", err)
		}
	}
	if err := answers(dial(t, l)); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestClosedLinkEndsItsConnections(t *testing.T) {
	for _, cut := range []bool{false, true} {
		l, err := newLink(t.Context(), []string{echo(t)})
		if err != nil {
			t.Fatal(err)
		}
		conn := dial(t, l)
		if err := answers(conn); err != nil {
			t.Fatal(err)
		}
		if cut {
			l.cut()
		}
		l.close() // waits for all goroutines
		if err := answers(conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cut %v: %v, want the end of the connection", cut, err)
		}
	}
}
