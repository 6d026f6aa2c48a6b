package settings

import (
	"testing"
	"time"
)

func TestRetentionIsParsed(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1h": time.Hour, "90m": 90 * time.Minute, "1h0m0s": time.Hour} {
		if got, err := (Server{retention: text}).parseRetention(); err != nil || got != want {
			t.Errorf("%q is %v, %v, not %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "-1h", "1 hour", "1d", "9999999h"} {
		if got, err := (Server{retention: text}).parseRetention(); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
	for _, known := range knownSettings {
		if known.key == "auto-compaction-retention" && known.value != "1h" {
			t.Errorf("the default retention is %s, want 1h", known.value)
		}
	}
}
