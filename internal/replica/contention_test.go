package replica

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// plainContention says what an ownership key is: a name that is not empty, and a lease spelled as OwnershipKey does.
func plainContention(key string) (name string, lease lessor.ID, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i <= 0 {
		return "", 0, false
	}
	id, err := strconv.ParseInt(key[i+1:], 16, 64)
	if err != nil || id == 0 || string(OwnershipKey(key[:i], lessor.ID(id))) != key {
		return "", 0, false
	}
	return key[:i], lessor.ID(id), true
}

func TestContentionIsWhatOwnershipKeyWrites(t *testing.T) {
	keys := []string{
		"", "/", "a", "a/", "/1", "a/1", "a/b/1", "a//1", "a/-", "a/-1", "a/--1", "a/1-", "a/0", "a/-0", "a/01", "a/-01",
		"a/A", "a/g", "a/+1", "a/0x1", "-1", "a-1", "1", "a/1/", "a/ 1", "a/1_0",
	}
	for _, edge := range []int64{1, -1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1} {
		keys = append(keys, string(OwnershipKey("n", lessor.ID(edge))), string(OwnershipKey("n", lessor.ID(edge)))+"0")
	}
	for _, number := range []string{"8000000000000000", "ffffffffffffffff", "10000000000000000", "-8000000000000001", "-ffffffffffffffff"} {
		keys = append(keys, "n/"+number)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		key := make([]byte, rng.IntN(22))
		for i := range key {
			key[i] = "/-0189afgF"[rng.IntN(10)]
		}
		keys = append(keys, string(key), string(OwnershipKey("n", lessor.ID(rng.Uint64()>>rng.IntN(64)))))
	}
	found := 0
	for _, key := range keys {
		name, lease, ok := contention([]byte(key))
		wantName, wantLease, want := plainContention(key)
		if ok != want || ok && (string(name) != wantName || lease != wantLease) {
			t.Fatalf("%q is %q, %x, %v, and not %q, %x, %v", key, name, lease, ok, wantName, wantLease, want)
		}
		if ok {
			found++
		}
	}
	if found < len(keys)/4 {
		t.Errorf("only %d of %d keys are of a line", found, len(keys))
	}
}
