package settings

import "testing"

func TestNumbersOfBytesAreParsed(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "256MiB": 256 << 20, "8GiB": 8 << 30, "1 KiB": 1 << 10, "2TiB": 2 << 40, "9223372036854775807": 1<<63 - 1,
	} {
		got, err := parseBytes("quota-bytes", text)
		if err != nil || got != want {
			t.Errorf("%q is %d, %v, not %d", text, got, err, want)
		}
		if again, err := parseBytes("quota-bytes", writeBytes(got)); err != nil || again != got {
			t.Errorf("%d is written %q", got, writeBytes(got))
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "8GB", "9223372036854775808", "9007199254740992TiB", "x"} {
		if got, err := parseBytes("quota-bytes", text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
