package namesapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// storedHolder is the value of an ownership key. It is JSON, so that people can read it with etcd's tools.
type storedHolder struct {
	Holder  *string    `json:"holder"`
	Host    string     `json:"host,omitempty"`
	PID     int64      `json:"pid,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Text    string     `json:"text,omitempty"`
}

// maxStoredHolder is an upper bound, in bytes, of a stored holder in which every character is escaped.
const maxStoredHolder = 32 << 10

// writeHolder encodes a holder. It returns an error if a field is too long.
func writeHolder(h *leasekeeperv1.Holder) ([]byte, error) {
	for _, field := range []struct {
		what, text string
		most       int
	}{{"id", h.GetId(), backend.MaxHolderID}, {"host", h.GetHost(), backend.MaxHolderID}, {"text", h.GetText(), backend.MaxCardText}} {
		if len(field.text) > field.most {
			return nil, fmt.Errorf("%w: the holder's %s has %d bytes, more than %d: shorten it", backend.ErrInvalid, field.what, len(field.text), field.most)
		}
	}
	id := h.GetId()
	stored := storedHolder{Holder: &id, Host: h.GetHost(), PID: h.GetPid(), Text: h.GetText()}
	if h.GetStarted() != nil {
		if err := h.Started.CheckValid(); err != nil {
			return nil, fmt.Errorf("%w: the holder's start: %v", backend.ErrInvalid, err)
		}
		started := h.Started.AsTime()
		stored.Started = &started
	}
	var value bytes.Buffer
	encoder := json.NewEncoder(&value)
	encoder.SetEscapeHTML(false) // it would only make the value longer
	if err := encoder.Encode(stored); err != nil {
		return nil, fmt.Errorf("%w: the holder: %v", backend.ErrInvalid, err)
	}
	return bytes.TrimSuffix(value.Bytes(), []byte("\n")), nil
}

// readHolder decodes any value. A client of etcd's own recipe may store no value or a different one, which becomes the
// text.
func readHolder(value []byte) *leasekeeperv1.Holder {
	var stored storedHolder
	if len(value) <= maxStoredHolder && json.Unmarshal(value, &stored) == nil && stored.Holder != nil {
		h := &leasekeeperv1.Holder{Id: *stored.Holder, Host: stored.Host, Pid: stored.PID, Text: stored.Text}
		if stored.Started != nil {
			h.Started = timestamppb.New(*stored.Started)
		}
		return h
	}
	if len(value) > backend.MaxCardText || !utf8.Valid(value) {
		return &leasekeeperv1.Holder{}
	}
	return &leasekeeperv1.Holder{Text: string(value)}
}

// timestamp returns nil for the zero time, which means unknown.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
