package traceparent_test

import (
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/traceparent"
)

const (
	id    = "4bf92f3577b34da6a3ce929d0e0e4736"
	valid = "00-" + id + "-00f067aa0ba902b7-01"
)

func TestTraceIDOfAValidHeader(t *testing.T) {
	for _, text := range []string{valid, "00" + valid[2:53] + "00", "cc" + valid[2:]} {
		if got := traceparent.TraceID(text); got != id {
			t.Errorf("%q has the trace id %q", text, got)
		}
	}
}

func TestMalformedHeaderHasNoTraceID(t *testing.T) {
	for what, text := range map[string]string{
		"empty":             "",
		"too short":         valid[:54],
		"too long":          valid + "0",
		"a later form":      valid + "-what-comes-next",
		"version ff":        "ff" + valid[2:],
		"no trace id":       "00-" + strings.Repeat("0", 32) + valid[35:],
		"no parent":         valid[:36] + strings.Repeat("0", 16) + valid[52:],
		"capitals":          strings.ToUpper(valid),
		"a letter above f":  valid[:10] + "g" + valid[11:],
		"a line break":      valid[:10] + "\n" + valid[11:],
		"a dash elsewhere":  valid[:10] + "-" + valid[11:],
		"no dash":           valid[:35] + "0" + valid[36:],
		"a space for a bit": " " + valid[1:],
	} {
		if got := traceparent.TraceID(text); got != "" || traceparent.Valid(text) {
			t.Errorf("%s: %q has the trace id %q", what, text, got)
		}
	}
}

func FuzzTraceIDIsLowerCaseHexadecimal(f *testing.F) {
	f.Add(valid)
	f.Add("ff" + valid[2:])
	f.Fuzz(func(t *testing.T, text string) {
		got := traceparent.TraceID(text)
		if got == "" {
			return
		}
		if len(text) != 55 || len(got) != 32 || strings.Trim(got, "0123456789abcdef") != "" {
			t.Errorf("%q has the trace id %q", text, got)
		}
	})
}
