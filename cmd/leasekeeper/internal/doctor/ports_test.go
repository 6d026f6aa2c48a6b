package doctor

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/serve"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

func TestPortsAreJudged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy, other := serve.CheckPort(l.Addr().String(), "--listen"), serve.CheckPort("203.0.113.1:1", "--listen")
	plain, secure := port{address: "127.0.0.1:1", flag: "--listen"}, port{address: "127.0.0.1:1", flag: "--listen", tls: true}
	for _, c := range []struct {
		what   string
		p      port
		err    error
		found  answered
		others bool
		want   Verdict
	}{
		{"free", plain, nil, answered{}, false, OK},
		{"free, while the server runs", plain, nil, answered{}, true, Warn},
		{"not allowed", plain, other, answered{}, false, Fail},
		{"silent", plain, busy, answered{}, false, Fail},
		{"another program", plain, busy, answered{connects: true}, false, Fail},
		{"the server", plain, busy, answered{connects: true, version: "v1"}, true, OK},
		{"the port for members of a server that runs", plain, busy, answered{connects: true}, true, OK},
		{"without TLS", secure, busy, answered{connects: true, version: "v1"}, true, Fail},
		{"with another certificate", secure, busy, answered{connects: true, tls: true, another: true}, true, Warn},
		{"with TLS", secure, busy, answered{connects: true, tls: true}, true, OK},
	} {
		expect(t, c.what, judgePort(c.p, c.err, c.found, c.others), c.want)
	}
}

func TestProgramThatAnswersIsFound(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			w.Write([]byte(`{"leasekeeper":"v9"}`))
		}
	}
	plain, secure := httptest.NewServer(http.HandlerFunc(answer)), httptest.NewTLSServer(http.HandlerFunc(answer))
	defer plain.Close()
	defer secure.Close()
	ours, theirs := filepath.Join(t.TempDir(), "ours"), filepath.Join(t.TempDir(), "theirs")
	for file, der := range map[string][]byte{ours: secure.Certificate().Raw, theirs: authority.New(t, "x").Pair("x").Certificate[0]} {
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		url  string
		tls  bool
		cert string
		want answered
	}{
		{plain.URL, false, "", answered{connects: true, version: "v9"}},
		{secure.URL, true, ours, answered{connects: true, version: "v9", tls: true}},
		{secure.URL, true, theirs, answered{connects: true, version: "v9", tls: true, another: true}},
		{plain.URL, true, ours, answered{connects: true}},
	} {
		_, address, _ := strings.Cut(c.url, "://")
		if got := lookAt(t.Context(), port{address: address, tls: c.tls, cert: c.cert, speaksHTTP: true}); got != c.want {
			t.Errorf("%s, TLS %v: %+v", c.url, c.tls, got)
		}
	}
	if got := lookAt(t.Context(), port{address: "127.0.0.1:1"}); got.connects {
		t.Error("nothing listens there")
	}
}

func TestPlacesAreLookedUpAndJudged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	found := lookUp(t.Context(), []string{l.Addr().String(), "127.0.0.1:1"})
	if len(found) != 2 || found[0].resolves != nil || found[0].connects != nil || found[1].resolves != nil || found[1].connects == nil {
		t.Errorf("%+v", found)
	}
	up, down, unknown := place{address: "h:1"}, place{address: "h:2", connects: net.ErrClosed}, place{address: "x:1", resolves: net.ErrClosed}
	for _, c := range []struct {
		what     string
		places   []place
		expected bool
		want     Verdict
	}{
		{"none", nil, true, NotChecked}, {"all answer", []place{up, up}, true, OK}, {"one is silent", []place{up, down}, false, Warn},
		{"one is silent and should not be", []place{up, down}, true, Fail}, {"all are silent", []place{down}, false, OK}, {"unknown", []place{up, unknown}, false, Fail},
	} {
		expect(t, c.what, judgePlaces("x", c.places, c.expected, "and so on"), c.want)
	}
}

func TestAddressOfEveryInterfaceIsReachedLocally(t *testing.T) {
	for address, want := range map[string]string{"0.0.0.0:1": "127.0.0.1:1", "[::]:1": "127.0.0.1:1", ":1": "127.0.0.1:1", "10.0.0.7:1": "10.0.0.7:1", "h:1": "h:1"} {
		if got := reachable(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestTLSOfMembersIsJudged(t *testing.T) {
	expect(t, "TLS", judgePeerTLS(true, []string{"10.0.0.7:1"}), OK)
	expect(t, "loopback", judgePeerTLS(false, []string{"127.0.0.1:1", "localhost:2", "[::1]:3"}), OK)
	expect(t, "a network", judgePeerTLS(false, []string{"127.0.0.1:1", "10.0.0.7:1"}), Warn)
	expect(t, "a name", judgePeerTLS(false, []string{"a.example.org:1"}), Warn)
}
