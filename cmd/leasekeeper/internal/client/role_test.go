package client

import "testing"

func TestRangesOfKeysInWords(t *testing.T) {
	for prefix, end := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "\xff": "\x00", "\xff\xff": "\x00"} {
		if got := prefixEnd(prefix); got != end {
			t.Errorf("the keys with the prefix %q end before %q", prefix, got)
		}
	}
	for k, want := range map[keysGranted]string{
		{Key: "a"}:                          "key a",
		{Key: "\x00", RangeEnd: "\x00"}:     "all keys",
		{Key: "a/", RangeEnd: "a0"}:         "keys a/…",
		{Key: "a", RangeEnd: "\x00"}:        "keys from a on",
		{Key: "a", RangeEnd: "c"}:           "keys from a to before c",
		{Key: "\xff\xff", RangeEnd: "\x00"}: "keys \xff\xff…",
	} {
		if got := k.words(); got != want {
			t.Errorf("%+v: %q, want %q", k, got, want)
		}
	}
}
