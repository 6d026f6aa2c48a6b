package memory

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
)

func init() { backend.Register("memory", open) }

// namedStores are the stores that URLs can name. They live as long as the process.
var namedStores = struct {
	sync.Mutex
	stores map[string]*Store
}{stores: make(map[string]*Store)}

// Named returns the store of the URL "memory:" + name: the same one each time.
func Named(name string) *Store {
	namedStores.Lock()
	defer namedStores.Unlock()
	s := namedStores.stores[name]
	if s == nil {
		s = New()
		namedStores.stores[name] = s
	}
	return s
}

func open(_ context.Context, u *url.URL) (backend.Backend, error) {
	if u.Host != "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("memory: %w: the URL is \"memory:\" for a new store or \"memory:NAME\" for one to share, and nothing else", backend.ErrInvalid)
	}
	if u.Opaque == "" {
		return New().Backend(), nil
	}
	return Named(u.Opaque).Backend(), nil
}
