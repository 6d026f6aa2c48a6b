package intake

import "slices"

// Clients' commands that take long wait in a queue of their own, the bulk queue. Each log entry carries commands of the
// short queue first, and then a little of bulk, but at least one command. So a flood of large puts delays a grant, a
// claim, or a renewal that has to be written, by one short entry, and is itself never stopped.
//
// Two commands of one queue are applied in the order in which they came. Two of different queues need not be: neither was
// answered when the other came, so no client can know in which order they were sent.

const (
	// MaxBulkEntryBytes and maxBulkEntryWeight bound the bulk commands of one entry. A single command may be larger.
	MaxBulkEntryBytes  = 256 << 10
	maxBulkEntryWeight = 256
	// maxBulkQueue and maxBulkQueueBytes bound the bulk queue. They leave space to the short queue.
	maxBulkQueue      = MaxQueue / 4
	maxBulkQueueBytes = MaxBytes / 4 * 3
)

// bulkQueue holds the bulk commands that wait to be proposed, in order.
type bulkQueue struct {
	waiting []Pending
	bytes   int // of waiting
}

func (q *bulkQueue) length() int { return len(q.waiting) }

// full reports whether the queue takes no more.
func (q *bulkQueue) full() bool {
	return len(q.waiting) >= maxBulkQueue || q.bytes >= maxBulkQueueBytes
}

func (q *bulkQueue) add(p Pending) {
	q.waiting = append(q.waiting, p)
	q.bytes += p.Size
}

// take takes the commands of the next entry: at least one if any wait.
func (q *bulkQueue) take() []Pending {
	n := fitting(q.waiting, MaxBulkEntryBytes, maxBulkEntryWeight)
	taken := slices.Clone(q.waiting[:n])
	clear(q.waiting[:n])
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.bytes -= clientBytes(taken)
	return taken
}

// filter keeps the commands that keep returns.
func (q *bulkQueue) filter(keep func([]Pending) []Pending) {
	q.waiting = keep(q.waiting)
	q.bytes = clientBytes(q.waiting)
}

// all returns the commands in order.
func (q *bulkQueue) all() []Pending { return q.waiting }
