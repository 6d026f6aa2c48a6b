package sqlstore

import (
	"sync"
	"weak"
)

// SharedDB is a DB whose stores commit their writes together with those of other stores of this process.
type SharedDB interface {
	// Shares identifies the database and the session settings of its connections. If two DBs return the same text,
	// either may run the statements of the other. Empty means that no other DB may.
	Shares() string
}

// queueKey identifies the stores that have one writeQueue.
type queueKey struct {
	shares string
	config Config
	marks  bool // the stores know the column of marks
}

// queues are the queues of this process that more than one store may use.
var queues struct {
	mu  sync.Mutex
	all map[queueKey]weak.Pointer[writeQueue]
}

// queueOf returns the queue of the writes of a store: that of the other stores with the same configuration in the same
// database, if there are any.
func queueOf(db DB, c Config, marks bool) *writeQueue {
	shared, ok := db.(SharedDB)
	if !ok || shared.Shares() == "" {
		return &writeQueue{}
	}
	key := queueKey{shared.Shares(), c, marks}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for other, queue := range queues.all { // order: all that are no longer used are removed
		if queue.Value() == nil {
			delete(queues.all, other)
		}
	}
	if q := queues.all[key].Value(); q != nil {
		return q
	}
	if queues.all == nil {
		queues.all = make(map[queueKey]weak.Pointer[writeQueue])
	}
	q := &writeQueue{}
	queues.all[key] = weak.Make(q)
	return q
}
