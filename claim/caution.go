package claim

import "github.com/leasekeeper/leasekeeper/driver"

var _ driver.Cautious = (*Backend)(nil)

// Cautions implements [driver.Cautious], if the store does.
func (b *Backend) Cautions() []string {
	if s, ok := b.store.(driver.Cautious); ok {
		return s.Cautions()
	}
	return nil
}
