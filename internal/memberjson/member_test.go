package memberjson

import "testing"

func TestPrefixesOfGRPCAreRemovedFromConnectionErrors(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: authentication handshake failed: tls: x"`: "tls: x",
		`connection error: desc = "error reading server preface: remote error: tls: y"`: "remote error: tls: y",
		"z": "z",
	} {
		if got := Innermost(text); got != want {
			t.Errorf("Innermost(%q) = %q, want %q", text, got, want)
		}
	}
}
