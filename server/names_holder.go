package server

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/driver"
)

// storedHolder is what the value of an ownership key says, for those who read it with etcd's tools too.
type storedHolder struct {
	Holder  *string    `json:"holder"`
	Host    string     `json:"host,omitempty"`
	PID     int64      `json:"pid,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Text    string     `json:"text,omitempty"`
}

// writeHolder refuses what is too long to be remembered.
func writeHolder(h *leasekeeperv1.Holder) ([]byte, error) {
	id := h.GetId()
	stored := storedHolder{Holder: &id, Host: h.GetHost(), PID: h.GetPid(), Text: h.GetText()}
	if h.GetStarted() != nil {
		if err := h.Started.CheckValid(); err != nil {
			return nil, fmt.Errorf("%w: the holder's start: %v", driver.ErrInvalid, err)
		}
		started := h.Started.AsTime()
		stored.Started = &started
	}
	value, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("%w: the holder: %v", driver.ErrInvalid, err)
	}
	if len(value) > maxHolderBytes {
		return nil, fmt.Errorf("%w: the holder takes %d bytes, and %d are the most: shorten its text", driver.ErrInvalid, len(value), maxHolderBytes)
	}
	return value, nil
}

// readHolder reads any value: those who stand in line by etcd's own recipe may have none or another.
func readHolder(value []byte) *leasekeeperv1.Holder {
	var stored storedHolder
	if len(value) <= maxHolderBytes && json.Unmarshal(value, &stored) == nil && stored.Holder != nil {
		h := &leasekeeperv1.Holder{Id: *stored.Holder, Host: stored.Host, Pid: stored.PID, Text: stored.Text}
		if stored.Started != nil {
			h.Started = timestamppb.New(*stored.Started)
		}
		return h
	}
	if len(value) > maxHolderBytes || !utf8.Valid(value) {
		return &leasekeeperv1.Holder{}
	}
	return &leasekeeperv1.Holder{Text: string(value)}
}

// timestamp is nil for a time that is not known.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
