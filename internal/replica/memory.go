package replica

import "github.com/leasekeeper/leasekeeper/internal/replica/entry"

// lacksMemory reports whether a command is refused because memory is short.
func (r *Replica) lacksMemory(c entry.Command) bool {
	return r.memoryShort && entry.StaysInMemory(c) && !r.repeats(c)
}

// writeAnswerShare is the part of Config.AnswerBytes that the answer to one request that writes may take.
const writeAnswerShare = 16
