package webconsole

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/namejson"
)

const (
	// queueLimit is how many waiting claims of a name the console reads, and shows to programs.
	queueLimit = 100
	// queueRows is how many waiting claims the page of a name shows. The rows are always there, so that nothing moves.
	queueRows = 5
)

// waiterJSON is a waiting claim for programs.
type waiterJSON struct {
	Holder   *namejson.Holder `json:"holder"`
	Priority int              `json:"priority"`
	// Preferred says that an operator has chosen the claim as the next holder.
	Preferred bool `json:"preferred"`
	// Foreign says that another program waits, which no claim overtakes.
	Foreign bool `json:"foreign"`
}

// readDetail reads what only the page of a name shows.
func (r *reader) readDetail(ctx context.Context, name string) detail {
	d := detail{attached: r.readAttached(ctx, name)}
	historian, err := backend.Can[backend.Historian](r.store)
	if d.err = err; err == nil {
		d.history, d.err = historian.History(ctx, name, historyLimit)
	}
	lister, err := backend.Can[backend.QueueLister](r.store)
	if d.queueErr = err; err == nil {
		d.queue, d.queueErr = lister.Queue(ctx, name, queueLimit)
	}
	return d
}

// addQueue adds the table of waiting claims. waiting is the length of the queue, and negative if the store cannot tell.
func addQueue(c cells, d detail, waiting int, body *oneNameBody, data *oneNameJSON) {
	for i := range queueRows {
		key := fmt.Sprintf("waiter.%d.", i)
		if i >= len(d.queue) {
			for _, column := range []string{"place", "holder", "priority"} {
				c[key+column] = cell{}
			}
			continue
		}
		w := &d.queue[i]
		c[key+"place"] = cell{Text: strconv.Itoa(i + 1)}
		c[key+"holder"] = holderCell(w.Holder.ID)
		c[key+"priority"] = priorityCell(w)
	}
	c["queue.note"] = queueNote(d, waiting)
	for _, w := range d.queue {
		if !w.Foreign {
			body.Waiters = append(body.Waiters, w.Holder.ID)
		}
		data.Queue = append(data.Queue, waiterJSON{namejson.OfHolder(w.Holder), int(w.Priority), w.Preferred, w.Foreign})
	}
}

func priorityCell(w *backend.Waiter) cell {
	switch {
	case w.Foreign:
		return cell{Text: "another program", Tone: quiet}
	case w.Preferred:
		return cell{Text: "preferred", Tone: live}
	}
	return cell{Text: strconv.Itoa(int(w.Priority))}
}

// queueNote says what the table of waiting claims lacks.
func queueNote(d detail, waiting int) cell {
	var older *backend.UnsupportedError
	switch {
	case errors.As(d.queueErr, &older) && older.Instead != "":
		return cell{Text: "The queue cannot be read: " + older.Instead, Tone: quiet}
	case d.queueErr != nil && !errors.Is(d.queueErr, backend.ErrUnsupported):
		return cell{Text: "The queue cannot be read: " + backend.Printable(d.queueErr.Error()), Tone: bad}
	case d.queueErr == nil && waiting <= 0 && len(d.queue) == 0:
		return cell{Text: "Nothing waits for the name.", Tone: quiet}
	case max(waiting, len(d.queue)) > queueRows:
		return cell{Text: fmt.Sprintf("%s more wait behind these.", grouped(max(waiting, len(d.queue))-queueRows)), Tone: quiet}
	}
	return cell{}
}
