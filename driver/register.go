package driver

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Opener opens the backend that a URL of its scheme names. The URL is valid, and its query holds only what
// the backend documents: an unknown parameter is [ErrInvalid].
type Opener func(ctx context.Context, u *url.URL) (Backend, error)

var schemes = struct {
	sync.Mutex
	openers map[string]Opener
}{openers: make(map[string]Opener)}

// Register makes a backend known by the scheme of its URLs. It is called when a backend's package is
// imported, and panics if the scheme is taken.
func Register(scheme string, open Opener) {
	schemes.Lock()
	defer schemes.Unlock()
	if schemes.openers[scheme] != nil {
		panic(fmt.Sprintf("driver: the scheme %q is registered twice", scheme))
	}
	schemes.openers[scheme] = open
}

// Schemes returns the registered schemes, sorted.
func Schemes() []string {
	schemes.Lock()
	defer schemes.Unlock()
	names := make([]string, 0, len(schemes.openers))
	for name := range schemes.openers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Open opens the backend that a URL names.
func Open(ctx context.Context, rawURL string) (Backend, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL of a store can not be read: %w", ErrInvalid, err)
	}
	schemes.Lock()
	open := schemes.openers[u.Scheme]
	schemes.Unlock()
	if open == nil {
		return nil, fmt.Errorf("%w: no backend for %q: its package must be imported (there are: %s)",
			ErrInvalid, u.Scheme, strings.Join(Schemes(), ", "))
	}
	return open(ctx, u)
}
