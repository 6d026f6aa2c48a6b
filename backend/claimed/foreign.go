package claimed

import (
	"context"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// ForeignKinds implements [backend.ForeignLister]. It returns none for a store that is no [claim.ForeignLister].
func (b *Backend) ForeignKinds() []string {
	if s, ok := b.store.(claim.ForeignLister); ok {
		return s.ForeignKinds()
	}
	return nil
}

// ForeignLocks implements [backend.ForeignLister].
func (b *Backend) ForeignLocks(ctx context.Context, limit int) ([]backend.ForeignLock, bool, error) {
	s, ok := b.store.(claim.ForeignLister)
	if !ok {
		return nil, false, &backend.UnsupportedError{Backend: b.Scheme(), What: backend.Foreign}
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer end()
	locks, more, err := s.ForeignLocks(ctx, limit)
	return locks, more, b.callError(ctx, err)
}
