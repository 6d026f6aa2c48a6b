package main

import (
	"errors"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"
)

// logBytes is the size of the log. Its blocks are written when it is created, so that a sync writes data only, and no
// metadata of the file. After its end the log begins again.
const logBytes = 16 << 20

// A syncedLog writes requests to a file and syncs it before append returns. One sync serves all requests that arrived
// while the sync before it was under way (group commit).
type syncedLog struct {
	file *os.File

	mu      sync.Mutex
	waiting *group // collects requests for the next sync
	syncing bool   // a caller of append is writing a group

	offset int64 // used only by the caller that is writing
}

// A group is the requests that share one sync.
type group struct {
	requests int
	bytes    []byte
	done     chan struct{} // closed when err is set
	err      error
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// createLog makes a log at path.
func createLog(path string) (*syncedLog, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(make([]byte, logBytes)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &syncedLog{file: file, waiting: newGroup()}, file.Sync()
}

func (l *syncedLog) close() error { return errors.Join(l.file.Close(), os.Remove(l.file.Name())) }

// append returns once the request is durable. A nil log returns at once.
func (l *syncedLog) append(request proto.Message) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	g := l.waiting
	var err error
	if g.bytes, err = (proto.MarshalOptions{}).MarshalAppend(g.bytes, request); err != nil {
		l.mu.Unlock()
		return err
	}
	g.requests++
	if l.syncing {
		l.mu.Unlock()
		<-g.done
		return g.err
	}
	l.syncing = true
	l.mu.Unlock()
	l.flush()
	return g.err
}

// flush writes the group that holds the caller's request. Another goroutine writes what has gathered meanwhile, so that
// the caller is answered.
func (l *syncedLog) flush() {
	l.writeNext()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syncing = l.waiting.requests > 0; l.syncing {
		go l.flush()
	}
}

// writeNext writes and syncs the waiting group.
func (l *syncedLog) writeNext() {
	l.mu.Lock()
	g := l.waiting
	l.waiting = newGroup()
	l.mu.Unlock()
	if l.offset+int64(len(g.bytes)) > logBytes {
		l.offset = 0
	}
	_, err := l.file.WriteAt(g.bytes, l.offset)
	l.offset += int64(len(g.bytes))
	g.err = errors.Join(err, syncData(l.file))
	close(g.done)
}
