package supervise

import (
	"encoding/json"
	"os"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// toGuard is what the wrapper tells the guard. One of its fields is set.
type toGuard struct {
	Order    *order         `json:"order,omitempty"` // first, and once
	Deadline *clock.Instant `json:"deadline,omitempty"`
	Lost     bool           `json:"lost,omitempty"`
	Signal   int            `json:"signal,omitempty"`
}

// order is what to run. Texts are bytes: they need not be UTF-8.
type order struct {
	Path     []byte        `json:"path"`
	Args     [][]byte      `json:"args"`
	Env      [][]byte      `json:"env"`
	Terminal bool          `json:"terminal"`
	Terms    Terms         `json:"terms"`
	Deadline clock.Instant `json:"deadline"`
}

// toWrapper is what the guard tells the wrapper. One of its fields is set.
type toWrapper struct {
	Started int         `json:"started,omitempty"` // the number of the process and of its group
	Failed  *StartError `json:"failed,omitempty"`
	TooLate bool        `json:"too_late,omitempty"`
	Stopped *stopped    `json:"stopped,omitempty"`
	Ending  reason      `json:"ending,omitempty"`
	Ended   *ended      `json:"ended,omitempty"` // the command's first process
	Trouble string      `json:"trouble,omitempty"`
	Gone    bool        `json:"gone,omitempty"` // nothing runs any more; the last message
	Lost    bool        `json:"lost,omitempty"` // with Gone: because of the lease
}

// stopped says that the command's first process was stopped by a signal. The wrapper may have continued it
// since: After is how often it had been when it stopped.
type stopped struct {
	By    int `json:"by"`
	After int `json:"after"`
}

type ended struct {
	Code   int `json:"code"`
	Signal int `json:"signal"`
}

// Neither side waits for the other for longer than this: a command line may be large, the rest is small.
const (
	orderLimit = 10 * time.Second
	tellLimit  = time.Second
)

// link is one end of the socket between the two. What is sent by one goroutine at a time comes in order.
type link struct {
	file *os.File
	out  *json.Encoder
}

func newLink(file *os.File) *link { return &link{file: file, out: json.NewEncoder(file)} }

// send returns soon. After an error the link is of no use any more.
func (l *link) send(message any, limit time.Duration) error {
	if err := l.file.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return l.out.Encode(message)
}

// receive hands over all that comes, and closes the channel when nothing more can come. It ends when the
// link's file is closed and stop is too.
func receive[M any](l *link, to chan<- M, stop <-chan struct{}) {
	defer close(to)
	for in := json.NewDecoder(l.file); ; {
		var m M
		if err := in.Decode(&m); err != nil {
			return
		}
		select {
		case to <- m:
		case <-stop:
			return
		}
	}
}

func asBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

func asTexts(all [][]byte) []string {
	texts := make([]string, len(all))
	for i, b := range all {
		texts[i] = string(b)
	}
	return texts
}
