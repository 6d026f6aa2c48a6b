package intake

import "github.com/leasekeeper/leasekeeper/internal/replica/fairqueue"

// Clients' commands that take long wait in a queue of their own, the bulk queue. Each log entry carries commands of the
// short queue first, and then a little of bulk, but at least one command. So a flood of large puts delays a grant, a
// claim, or a renewal that has to be written, by one short entry, and is itself never stopped.
//
// In the bulk queue, clients take turns by the space that their commands take in entries. So a client with one bulk
// command does not wait for all those of a client with thousands.
//
// Two short commands are applied in the order in which they came, and so are two bulk commands of one client. Any other
// two need not be: neither was answered when the other came, so no client can know in which order they were sent.

const (
	// MaxBulkEntryBytes and maxBulkEntryWeight bound the bulk commands of one entry. A single command may be larger.
	MaxBulkEntryBytes  = 256 << 10
	maxBulkEntryWeight = 256
	// maxBulkQueue and maxBulkQueueBytes bound the bulk queue. They leave space to the short queue.
	maxBulkQueue      = MaxQueue / 4
	maxBulkQueueBytes = MaxBytes / 4 * 3
)

// bulkQueue holds the bulk commands that wait to be proposed.
type bulkQueue struct{ waiting *fairqueue.Queue[Pending] }

func newBulkQueue() bulkQueue {
	return bulkQueue{fairqueue.New[Pending](maxBulkQueue, maxBulkQueueBytes)}
}

func (q bulkQueue) length() int { return q.waiting.Len() }

// bytes returns the size of the commands.
func (q bulkQueue) bytes() int { return q.waiting.Bytes() }

// full reports whether the queue takes no more commands of this size from a client.
func (q bulkQueue) full(client string, size int) bool { return q.waiting.Full(client, size) }

func (q bulkQueue) add(client string, p Pending) {
	q.waiting.Add(client, fairqueue.Item[Pending]{Value: p, Bytes: p.Size, Cost: bulkCost(p)})
}

// bulkCost returns how much space in entries a command takes, in bytes. A unit of weight counts as its share of the bytes.
func bulkCost(p Pending) uint64 {
	return uint64(p.Size) + uint64(p.weight)*(MaxBulkEntryBytes/maxBulkEntryWeight)
}

// take takes the commands of the next entry: at least one if any wait.
func (q bulkQueue) take() (taken []Pending) {
	size, weight := 0, 0
	fits := func(p Pending) bool {
		size, weight = size+p.Size, weight+p.weight
		return len(taken) == 0 || size <= MaxBulkEntryBytes && weight <= maxBulkEntryWeight
	}
	for p, ok := q.waiting.Next(fits); ok; p, ok = q.waiting.Next(fits) {
		taken = append(taken, p)
	}
	return taken
}

// removeIf removes the commands that are unwanted, and returns them: client by client, each client's in order.
func (q bulkQueue) removeIf(unwanted func(Pending) bool) (removed []Pending) {
	q.waiting.Filter(func(p Pending) bool {
		if unwanted(p) {
			removed = append(removed, p)
			return false
		}
		return true
	})
	return removed
}
