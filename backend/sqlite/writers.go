package sqlite

import (
	"os"
	"slices"
	"sync"
)

// A line is where the writers of this process stand who write to one file, through whichever store: it has room for
// one. Those of several stores would otherwise meet at the file's lock, which keeps no line, and lose most of their
// time with asking again.
type writerQueue struct {
	info   os.FileInfo
	slot   chan struct{}
	stores int
}

// lines are those of all files that are open in this process.
var writerQueues struct {
	mu  sync.Mutex
	all []*writerQueue
}

// lineOf joins the line of a file. Who no longer writes has to leave it.
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

// leave ends the line with its last store.
func (l *writerQueue) leave() {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	if l.stores--; l.stores == 0 {
		writerQueues.all = slices.DeleteFunc(writerQueues.all, func(other *writerQueue) bool { return other == l })
	}
}
