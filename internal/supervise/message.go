package supervise

import (
	"encoding/json"
	"os"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// toGuard is a message of the wrapper to the guard. One of its fields is set.
type toGuard struct {
	Order    *order         `json:"order,omitempty"` // the first message, once
	Deadline *clock.Instant `json:"deadline,omitempty"`
	Lost     bool           `json:"lost,omitempty"`
	Signal   int            `json:"signal,omitempty"`
}

// order has the command to run. Its texts are bytes, because they need not be UTF-8.
type order struct {
	Path     []byte        `json:"path"`
	Args     [][]byte      `json:"args"`
	Env      [][]byte      `json:"env"`
	Terminal bool          `json:"terminal"`
	Terms    Terms         `json:"terms"`
	Deadline clock.Instant `json:"deadline"`
}

// toWrapper is a message of the guard to the wrapper. One of its fields is set, or Gone and Lost.
type toWrapper struct {
	Started int         `json:"started,omitempty"` // the ID of the process and of its group
	Failed  *StartError `json:"failed,omitempty"`
	TooLate bool        `json:"too_late,omitempty"`
	Stopped *stopped    `json:"stopped,omitempty"`
	Ending  reason      `json:"ending,omitempty"`
	Ended   *ended      `json:"ended,omitempty"` // the command's first process has ended
	Trouble string      `json:"trouble,omitempty"`
	Gone    bool        `json:"gone,omitempty"` // all processes have ended; this is the last message
	Lost    bool        `json:"lost,omitempty"` // with Gone: they were ended because of the lease
}

// stopped reports that a signal stopped the command's first process. The wrapper may have continued it meanwhile: After
// counts how often the wrapper had continued it before it stopped.
type stopped struct {
	By    int `json:"by"`
	After int `json:"after"`
}

// ended reports how the command's first process ended.
type ended struct {
	Code   int `json:"code"`
	Signal int `json:"signal"`
}

// These bound how long either process waits to send a message. The order may be large; the others are small.
const (
	orderLimit = 10 * time.Second
	sendLimit  = time.Second
)

// link is one end of the socket between wrapper and guard. Only one goroutine may send at a time.
type link struct {
	file *os.File
	out  *json.Encoder // writes to the link
	used bool          // a part of a message was sent, perhaps not the whole
}

func newLink(file *os.File) *link {
	l := &link{file: file}
	l.out = json.NewEncoder(l)
	return l
}

// Write sends bytes of a message, for the encoder.
func (l *link) Write(piece []byte) (int, error) {
	n, err := l.file.Write(piece)
	l.used = l.used || n > 0
	return n, err
}

// send sends a message within the limit. After an error the link cannot be used again.
func (l *link) send(message any, limit time.Duration) error {
	if err := l.file.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return l.out.Encode(message)
}

// receive passes each received message to the channel, and closes it when the socket is closed. It ends when the link's
// file and stop are both closed.
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
