package keyspace

// EventType has the numbers of etcd's API.
type EventType int32

// The types of events.
const (
	EventPut EventType = iota
	EventDelete
)

// Event is one change of one key. The KV of a delete has only the key and the
// revision it was deleted at.
type Event struct {
	Type   EventType
	KV     KV
	PrevKV *KV // only if asked for and there
}

// Change is what happened at one revision: the events in order or, if a lease
// ended, the keys deleted with it, sorted.
type Change struct {
	Revision Revision
	Events   []Event
	Ended    []string
}

// Changes are what a Writer did, by revision. They share memory with the
// requests; nobody may change them.
type Changes []Change

func deleteEvent(key []byte, rev Revision) Event {
	return Event{Type: EventDelete, KV: KV{Key: key, ModRevision: rev}}
}
