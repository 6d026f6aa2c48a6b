package namesapi

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
)

// maxAuditRecords is the greatest number of records of one page.
const maxAuditRecords = 1000

// Audit returns a page of the audit log. The member that receives the request serves it.
func (n *Service) Audit(ctx context.Context, r *leasekeeperv1.AuditRequest) (*leasekeeperv1.AuditResponse, error) {
	q := audit.Query{After: r.After, Limit: int(min(r.Limit, maxAuditRecords)), Bytes: maxNamesBytes, User: r.User, ObjectPrefix: r.ObjectPrefix}
	if q.Limit == 0 {
		q.Limit = maxAuditRecords
	}
	if r.Since != nil {
		if err := r.Since.CheckValid(); err != nil {
			return nil, fmt.Errorf("%w: the time since which records are wanted: %w", backend.ErrInvalid, err)
		}
		q.Since = r.Since.AsTime().UnixMilli()
	}
	page, recording, err := n.cfg.Member.Audit(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &leasekeeperv1.AuditResponse{After: page.After, More: page.More, Recording: recording}
	for _, record := range page.Records {
		m := &leasekeeperv1.AuditRecord{
			Sequence: record.Sequence, Index: record.Index, User: record.By.User, Certificate: record.By.Origin.Certificate,
			Address: record.By.Origin.Address, Act: record.Name, Object: record.Object, Reason: record.Reason,
		}
		if record.Wall != 0 {
			m.Time = timestamppb.New(time.UnixMilli(record.Wall))
		}
		resp.Records = append(resp.Records, m)
	}
	return resp, nil
}
