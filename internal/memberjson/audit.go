package memberjson

import (
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// AuditRecord is a record of the audit log.
type AuditRecord struct {
	Sequence    uint64 `json:"sequence"`
	Index       uint64 `json:"index"`
	Time        string `json:"time,omitempty"`
	User        string `json:"user,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Address     string `json:"address,omitempty"`
	Act         string `json:"act"`
	Object      string `json:"object,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// OfAuditRecord returns the JSON of a record.
func OfAuditRecord(r *leasekeeperv1.AuditRecord) AuditRecord {
	shown := AuditRecord{
		Sequence: r.Sequence, Index: r.Index, User: r.User, Certificate: r.Certificate, Address: r.Address, Act: r.Act,
		Object: r.Object, Reason: r.Reason,
	}
	if r.Time != nil {
		shown.Time = r.Time.AsTime().Format(time.RFC3339Nano)
	}
	return shown
}
