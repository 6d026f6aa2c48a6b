package keepertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// New returns a keeper on a backend.
func New(t testing.TB, within time.Duration, b backend.Backend, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.New(b, o...)
	return closed(t, within, k, err)
}

// Open returns a keeper on the store of a URL. The test imports the package of the store.
func Open(t testing.TB, within time.Duration, url string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.Open(t.Context(), url, o...)
	return closed(t, within, k, err)
}

// closed lets the end of the test close the keeper.
func closed(t testing.TB, within time.Duration, k *leasekeeper.Keeper, err error) *leasekeeper.Keeper {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := k.Shutdown(ctx); err != nil && !errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return k
}
