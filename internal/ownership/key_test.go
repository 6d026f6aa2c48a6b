package ownership

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// plainKey parses an ownership key by its definition: a name that is not empty, and a lease spelled as in Key.
func plainKey(key string) (name string, lease lessor.ID, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i <= 0 {
		return "", 0, false
	}
	id, err := strconv.ParseInt(key[i+1:], 16, 64)
	if err != nil || id == 0 || string(Key(key[:i], lessor.ID(id))) != key {
		return "", 0, false
	}
	return key[:i], lessor.ID(id), true
}

func TestParseKeyAcceptsWhatKeyWrites(t *testing.T) {
	keys := []string{
		"", "/", "a", "a/", "/1", "a/1", "a/b/1", "a//1", "a/-", "a/-1", "a/--1", "a/1-", "a/0", "a/-0", "a/01", "a/-01",
		"a/A", "a/g", "a/+1", "a/0x1", "-1", "a-1", "1", "a/1/", "a/ 1", "a/1_0",
	}
	for _, edge := range []int64{1, -1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1} {
		keys = append(keys, string(Key("n", lessor.ID(edge))), string(Key("n", lessor.ID(edge)))+"0")
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
		keys = append(keys, string(key), string(Key("n", lessor.ID(rng.Uint64()>>rng.IntN(64)))))
	}
	found := 0
	for _, key := range keys {
		name, lease, ok := parseKey([]byte(key))
		wantName, wantLease, want := plainKey(key)
		if ok != want || ok && (string(name) != wantName || lease != wantLease) {
			t.Fatalf("%q is %q, %x, %v, and not %q, %x, %v", key, name, lease, ok, wantName, wantLease, want)
		}
		if ok {
			found++
		}
	}
	if found < len(keys)/4 {
		t.Errorf("only %d of %d keys are ownership keys", found, len(keys))
	}
}

func TestParseKeyReturnsNameAndLease(t *testing.T) {
	for key, want := range map[string]string{
		"n/1": "n 1", "a/b/ff": "a/b 255", "n/-1": "n -1", "n/7fffffffffffffff": "n 9223372036854775807", "//1": "/ 1", "n//1": "n/ 1",
		"n/": "", "n": "", "/1": "", "1": "", "": "", "n/01": "", "n/F": "", "n/0": "", "n/8000000000000000": "", "n/-": "", "n/1-": "",
		"n/--1": "", "n/10000000000000000": "", "n/1/": "",
	} {
		got := ""
		if name, lease, ok := parseKey([]byte(key)); ok {
			got = fmt.Sprintf("%s %d", name, lease)
			if back := string(Key(string(name), lease)); back != key {
				t.Errorf("%q comes back as %q", key, back)
			}
		}
		if got != want {
			t.Errorf("%q is %q, want %q", key, got, want)
		}
	}
}
