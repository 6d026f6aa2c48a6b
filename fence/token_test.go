package fence

import (
	"errors"
	"math/big"
	"strings"
	"testing"
)

func TestParseToken(t *testing.T) {
	for s, want := range map[string]Token{"1": 1, "42": 42, "18446744073709551615": 1<<64 - 1} {
		if got, err := ParseToken(s); err != nil || got != want || got.String() != s {
			t.Errorf("%q: got %d, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "0", "00", "01", "+1", "-1", " 1", "1 ", "1,2", "0x1", "1_0", "1.0", "1e3", "١",
		"18446744073709551616", strings.Repeat("9", 1000),
	} {
		got, err := ParseToken(s)
		if !errors.Is(err, ErrInvalid) || got != 0 {
			t.Errorf("%q: got %d, %v", s, got, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("the error repeats the whole text: %d bytes", len(err.Error()))
		}
	}
}

// FuzzParseToken compares ParseToken with integers of any size.
func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"1", "0", "007", "18446744073709551615", "18446744073709551616", "+5", "5 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := new(big.Int).SetString(s, 10)
		ok = ok && n.String() == s && n.Sign() > 0 && n.BitLen() <= 64
		got, err := ParseToken(s)
		if (err == nil) != ok {
			t.Fatalf("%q: %v", s, err)
		}
		if ok && uint64(got) != n.Uint64() {
			t.Fatalf("%q: got %d", s, got)
		}
	})
}
