package server

import (
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// snapshotChunk is the number of bytes of a snapshot in one message.
const snapshotChunk = 32 << 10

// Snapshot sends a copy of this member's data. It ends when the server stops.
func (m *membersService) Snapshot(_ *leasekeeperv1.SnapshotRequest, stream grpc.ServerStreamingServer[leasekeeperv1.SnapshotResponse]) error {
	ctx, end := m.s.life.Stream(stream.Context(), lifetime.AnyLeader)
	defer end(nil)
	start := time.Now()
	snapshot, err := m.s.member.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			tracing.Log(ctx, m.s.log).Warn("a snapshot was not removed; the next start removes it", "error", err)
		}
	}()
	out := &snapshotWriter{stream: stream, size: snapshot.Size()}
	if _, err = snapshot.WriteTo(out); err == nil {
		err = out.flush()
	}
	if err != nil {
		return err
	}
	tracing.Log(ctx, m.s.log).Info("snapshot sent", "bytes", snapshot.Size(), "took", time.Since(start))
	return nil
}

// snapshotWriter sends its data in messages of snapshotChunk bytes.
type snapshotWriter struct {
	stream grpc.ServerStreamingServer[leasekeeperv1.SnapshotResponse]
	size   int64
	buf    []byte
}

func (w *snapshotWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), snapshotChunk-len(w.buf))
		w.buf, rest = append(w.buf, rest[:n]...), rest[n:]
		if len(w.buf) == snapshotChunk {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// flush sends the buffered bytes. It does not reuse the buffer, because gRPC may still read it.
func (w *snapshotWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	data := w.buf
	w.buf = make([]byte, 0, snapshotChunk)
	return w.stream.Send(&leasekeeperv1.SnapshotResponse{Data: data, Size: w.size})
}
