package sqlite

import (
	"os"
	"slices"
	"sync"
)

// A line is where the writers of this process stand who write to one file, through whichever store: it has room for
// one. Those of several stores would otherwise meet at the file's lock, which keeps no line, and lose most of their
// time with asking again.
type line struct {
	info   os.FileInfo
	room   chan struct{}
	stores int
}

// lines are those of all files that are open in this process.
var lines struct {
	mu  sync.Mutex
	all []*line
}

// lineOf joins the line of a file. Who no longer writes has to leave it.
func lineOf(info os.FileInfo) *line {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	i := slices.IndexFunc(lines.all, func(l *line) bool { return os.SameFile(l.info, info) })
	if i < 0 {
		i = len(lines.all)
		lines.all = append(lines.all, &line{info: info, room: make(chan struct{}, 1)})
	}
	l := lines.all[i]
	l.stores++
	return l
}

// leave ends the line with its last store.
func (l *line) leave() {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if l.stores--; l.stores == 0 {
		lines.all = slices.DeleteFunc(lines.all, func(other *line) bool { return other == l })
	}
}
