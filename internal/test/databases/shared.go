//go:build unix

package databases

import (
	"slices"
	"sync"
	"testing"
)

// binary has what lasts as long as the tests of one binary.
var binary struct {
	sync.Mutex
	lasts    bool // Main runs
	cleanups []func()
	servers  map[string]any
}

// Main runs the tests of a binary, which then share their servers, and returns the exit code. TestMain calls
// it.
func Main(m *testing.M) int {
	binary.Lock()
	binary.lasts, binary.servers = true, make(map[string]any)
	binary.Unlock()
	code := m.Run()
	for _, cleanup := range slices.Backward(binary.cleanups) {
		cleanup()
	}
	return code
}

// lasting is a test whose servers stay until all tests of the binary have ended.
type lasting struct{ testing.TB }

func (lasting) Cleanup(f func()) { binary.cleanups = append(binary.cleanups, f) }
func (lasting) Failed() bool     { return false }

// shared returns the one server of its kind of this binary, or without Main one for this test.
func shared[T any](t testing.TB, kind string, start func(t testing.TB) T) T {
	t.Helper()
	binary.Lock()
	defer binary.Unlock()
	if !binary.lasts {
		return start(t)
	}
	if s, ok := binary.servers[kind]; ok {
		return s.(T)
	}
	s := start(lasting{t})
	binary.servers[kind] = s
	return s
}
