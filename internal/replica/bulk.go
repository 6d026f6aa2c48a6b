package replica

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Clients' commands that take long wait in a queue of their own, the bulk queue. Each log entry carries what waits in
// the other queue first, and then a little of bulk, but at least one command: so a flood of large puts delays a grant, a
// claim, or a renewal that has to be written, by one short entry, and is itself never stopped. Two commands of one queue
// are carried out in the order in which they came. Two of different queues need not be: neither was answered when the
// other came, so no client can tell in which order they were sent.

const (
	// maxBulkEntryBytes and maxBulkEntryWeight bound what of bulk one entry carries. A single command may be larger.
	maxBulkEntryBytes  = 256 << 10
	maxBulkEntryWeight = 256
	// maxBulkQueue and maxBulkQueueBytes bound the bulk queue. They leave the other queue room.
	maxBulkQueue      = MaxQueue / 4
	maxBulkQueueBytes = maxQueueBytes / 4 * 3
)

// enqueue puts a client's command in its queue.
func (r *Replica) enqueue(p pending) {
	if entry.IsBulk(p.Command) {
		r.bulk = append(r.bulk, p)
		r.bulkQueueBytes += p.Size
		return
	}
	r.queue = append(r.queue, p)
	r.queueBytes += p.Size
}

// queued is how many commands wait to be proposed.
func (r *Replica) queued() int { return len(r.queue) + len(r.bulk) }

// queueFull reports whether the queue of a command takes no more.
func (r *Replica) queueFull(c entry.Command) bool {
	switch {
	case r.queueBytes+r.bulkQueueBytes >= maxQueueBytes:
		return true
	case entry.IsBulk(c):
		return len(r.bulk) >= maxBulkQueue || r.bulkQueueBytes >= maxBulkQueueBytes
	}
	return len(r.queue) >= queueMark(c)
}

// takeBulk takes the bulk commands of the next entry: at least one if any wait.
func (r *Replica) takeBulk() []pending {
	n := fitting(r.bulk, maxBulkEntryBytes, maxBulkEntryWeight)
	taken := slices.Clone(r.bulk[:n])
	clear(r.bulk[:n])
	if r.bulk = r.bulk[n:]; len(r.bulk) == 0 {
		r.bulk = nil
	}
	r.bulkQueueBytes -= clientBytes(taken)
	return taken
}

// fitting returns how many of the commands, at least one unless there is none, have room within bounds.
func fitting(commands []pending, maxBytes, maxWeight int) int {
	n, size, weight := 0, 0, 0
	for _, p := range commands {
		size, weight = size+p.Size, weight+p.weight
		if n > 0 && (size > maxBytes || weight > maxWeight) {
			break
		}
		n++
	}
	return n
}
