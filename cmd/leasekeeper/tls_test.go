package main

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// scriptCertify makes an authority and a certificate that it signs, for servers and clients on this machine: NAME-ca.pem,
// NAME.pem and NAME.key.
func scriptCertify(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certify NAME")
	}
	ca := authority.New(ts, args[0])
	cert, key := ca.Issue(args[0])
	for name, text := range map[string][]byte{args[0] + "-ca.pem": ca.PEM(), args[0] + ".pem": cert, args[0] + ".key": key} {
		ts.Check(os.WriteFile(ts.MkAbs(name), text, 0o600))
	}
}
