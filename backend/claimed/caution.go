package claimed

import "github.com/leasekeeper/leasekeeper/backend"

var _ backend.Cautious = (*Backend)(nil)

// Cautions implements [backend.Cautious], if the store does.
func (b *Backend) Cautions() []string {
	if s, ok := b.store.(backend.Cautious); ok {
		return s.Cautions()
	}
	return nil
}
