package server

import (
	"sync/atomic"
	"time"
)

// slowRequest is the duration from which on the server logs a traced request.
const slowRequest = time.Second

// slowLogInterval is the shortest time between two of these log lines.
const slowLogInterval = time.Second

// slowLog bounds the log lines about slow requests.
type slowLog struct {
	after   time.Duration // slowRequest, except in tests
	last    atomic.Int64  // when the last line was logged, in nanoseconds since 1970
	leftOut atomic.Int64  // the slow requests since then
}

// logSlow logs a request that took long, if its client traces it: then id is its trace id, else id is empty. Each request that
// waits for a lock or an election, and each stream, takes as long as its client wants, so the caller leaves them out.
func (s *Server) logSlow(id, method string, took time.Duration, err error) {
	if id == "" || took < s.slow.after {
		return
	}
	now, last := time.Now().UnixNano(), s.slow.last.Load()
	if now-last < int64(slowLogInterval) || !s.slow.last.CompareAndSwap(last, now) {
		s.slow.leftOut.Add(1)
		return
	}
	about := []any{"trace_id", id, "method", method, "took", took.Round(time.Millisecond)}
	if err != nil {
		about = append(about, "error", err)
	}
	if n := s.slow.leftOut.Swap(0); n > 0 {
		about = append(about, "left_out", n)
	}
	s.log.Warn("a traced request was slow", about...)
}
