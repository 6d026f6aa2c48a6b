package sqlite

import (
	"os"
	"slices"
	"sync"
)

// writerQueue is the queue of this process's writers to one file, through whichever store: its slot has room
// for one. The writer that has the slot commits the waiting writes of others too, also of other stores. Writers of
// several stores would otherwise compete for the file's lock, which has no queue, and lose most of their time with
// retries.
type writerQueue struct {
	info   os.FileInfo
	slot   chan struct{}
	writes writeQueue // of the stores that opened the file themselves
	stores int
}

// writerQueues are the queues of all files that are open in this process.
var writerQueues struct {
	mu  sync.Mutex
	all []*writerQueue
}

// writerQueueOf joins the queue of a file. The caller has to leave it in the end.
func writerQueueOf(info os.FileInfo) *writerQueue {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	i := slices.IndexFunc(writerQueues.all, func(l *writerQueue) bool { return os.SameFile(l.info, info) })
	if i < 0 {
		i = len(writerQueues.all)
		writerQueues.all = append(writerQueues.all, &writerQueue{info: info, slot: make(chan struct{}, 1)})
	}
	l := writerQueues.all[i]
	l.stores++
	return l
}

// leave removes the queue with its last store.
func (l *writerQueue) leave() {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	if l.stores--; l.stores == 0 {
		writerQueues.all = slices.DeleteFunc(writerQueues.all, func(other *writerQueue) bool { return other == l })
	}
}
