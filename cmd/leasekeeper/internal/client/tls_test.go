package client

import "testing"

func TestInnermost(t *testing.T) {
	for said, want := range map[string]string{
		`connection error: desc = "transport: authentication handshake failed: tls: x"`: "tls: x",
		`connection error: desc = "error reading server preface: remote error: tls: y"`: "remote error: tls: y",
		"z": "z",
	} {
		if got := innermost(said); got != want {
			t.Errorf("of %q is left %q, want %q", said, got, want)
		}
	}
}
