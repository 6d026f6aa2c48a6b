package snapshotstream

import (
	"context"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// partSize is the number of bytes in one part, as in etcd. The last part is smaller.
const partSize = 32 << 10

// partLimit bounds the time in which a client takes one part. A client that has stalled would otherwise keep the snapshot,
// and a member makes only one at a time in etcd's format.
const partLimit = 30 * time.Second

var errStalled = status.Error(codes.DeadlineExceeded, "the client has taken no part of the snapshot for 30 seconds")

// Part is a part of a snapshot. send of [Send] owns it.
type Part struct {
	Data []byte
	Left int64 // bytes that follow
	Size int64 // bytes of the whole snapshot
}

// Snapshot is a snapshot of any format. Reading it ends with the context for which it was taken.
type Snapshot interface {
	io.WriterTo
	Size() int64 // number of bytes that WriteTo writes
	Close() error
}

// Send takes a snapshot, and gives it to send part by part. It logs that it was sent.
//
// Send returns an error if one part takes longer than partLimit. The call of send then still runs, so its caller must
// return from the handler of the request at once: gRPC ends a send that waits when the handler returns.
func Send[S Snapshot](ctx context.Context, log *slog.Logger, take func(context.Context) (S, error), send func(Part) error) error {
	log = tracing.Log(ctx, log)
	start := time.Now()
	snapshot, err := take(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			log.Warn("a snapshot was not removed; the next start removes it", "error", err)
		}
	}()
	size := snapshot.Size()
	out := &parts{send: send, left: size, size: size}
	if _, err = snapshot.WriteTo(out); err == nil {
		err = out.flush()
	}
	if err != nil {
		return err
	}
	log.Info("snapshot sent", "bytes", size, "took", time.Since(start))
	return nil
}

// parts is a writer that sends what is written.
type parts struct {
	send       func(Part) error
	left, size int64
	buf        []byte
}

func (w *parts) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), partSize-len(w.buf))
		w.buf, rest = append(w.buf, rest[:n]...), rest[n:]
		if len(w.buf) == partSize {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// flush sends the buffered bytes. It does not reuse the buffer, because gRPC may still read it.
func (w *parts) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.left -= int64(len(w.buf))
	data := w.buf
	w.buf = make([]byte, 0, partSize)
	sent := make(chan error, 1)
	go func() { sent <- w.send(Part{data, w.left, w.size}) }()
	limit := time.NewTimer(partLimit)
	defer limit.Stop()
	select {
	case err := <-sent:
		return err
	case <-limit.C:
		return errStalled
	}
}
