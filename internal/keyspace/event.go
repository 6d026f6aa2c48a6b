package keyspace

// EventType is the type of an event. Its numbers are those of etcd's API.
type EventType int32

// The types of events.
const (
	EventPut EventType = iota
	EventDelete
)

// Event is one change of one key. The KV of a delete has only the key and the revision of the delete.
type Event struct {
	Type   EventType
	KV     KV
	PrevKV *KV // nil unless the watcher asked for it and the key existed
}

// Change is what happened at one revision: either events in order, or the sorted keys that an ended lease deleted.
type Change struct {
	Revision Revision
	Events   []Event
	Ended    []string
}

// Changes are the changes of a Writer, by revision. They share memory with the requests, so nothing may change them.
type Changes []Change

func deleteEvent(key []byte, rev Revision) Event {
	return Event{Type: EventDelete, KV: KV{Key: key, ModRevision: rev}}
}
