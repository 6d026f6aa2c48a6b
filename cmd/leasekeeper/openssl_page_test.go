package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// opensslPage runs the lines of docs/operations.md for OpenSSL.
type opensslPage struct{ *page }

func newOpenSSLPage(t *testing.T) opensslPage {
	t.Helper()
	required.Program(t, "openssl", "openssl")
	return opensslPage{readPage(t, "operations.md")}
}

// certify makes an authority and certificates for hosts, or for users, by the lines of the page with other names.
func (p opensslPage) certify(authority string, names ...string) {
	p.t.Helper()
	p.succeed(strings.NewReplacer("members-ca", authority, "host1 host2 host3", strings.Join(names, " ")).Replace(p.block("-keyout members-ca.key")))
}

// serve starts a server, for which localhost.pem is a certificate, and returns its endpoint.
func (p opensslPage) serve(args ...string) string {
	p.t.Helper()
	server, err := launch(launchOptions{
		dir: p.dir, env: os.Environ(), args: append([]string{"--data-dir", "data", "--cert", "localhost.pem", "--key", "localhost.key"}, args...),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		server.kill()
		if text, err := os.ReadFile(filepath.Join(p.dir, "server.err")); p.t.Failed() && err == nil {
			p.t.Logf("log of the server:\n%s", text)
		}
	})
	return "https://localhost" + server.endpoint[strings.LastIndex(server.endpoint, ":"):]
}

// The lines of docs/operations.md that revoke a certificate with OpenSSL make a list by which a server that runs shuts the client
// out, and nobody else. The lines after the first three revoke a further one.
func TestOpenSSLLinesOfTheOperationsPageRevokeACertificate(t *testing.T) {
	p := newOpenSSLPage(t)
	p.certify("members-ca", "localhost")
	p.certify("clients-ca", "alice", "bob", "carol")
	revoke := p.block("-gencrl")
	p.succeed(strings.ReplaceAll(revoke, "alice.pem", "carol.pem"))
	endpoint := p.serve("--client-ca", "clients-ca.pem", "--client-crl", "clients-crl.pem")
	connect := func(user string) (string, error) {
		return p.shell("leasekeeper health --endpoint " + endpoint + " --cacert members-ca.pem --cert " + user + ".pem --key " + user + ".key")
	}
	for user, refused := range map[string]bool{"alice": false, "bob": false, "carol": true} {
		if out, err := connect(user); (err != nil) != refused {
			t.Errorf("before alice is revoked, %s is answered: %s%v", user, out, err)
		}
	}
	lines := strings.SplitN(revoke, "\n", 4)
	p.succeed(lines[3])
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err := connect("alice"); err != nil {
			break
		}
		if time.Since(began) > startLimit {
			t.Fatal("alice is served although her certificate is revoked")
		}
	}
	for user, refused := range map[string]bool{"alice": true, "bob": false, "carol": true} {
		if out, err := connect(user); (err != nil) != refused {
			t.Errorf("after alice is revoked, %s is answered: %s%v", user, out, err)
		}
	}
}
