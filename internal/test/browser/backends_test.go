package browser

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/backend/sqlite"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
	"github.com/leasekeeper/leasekeeper/server"
)

// backends open a store of each kind.
var backends = map[string]func(t *testing.T) backend.Backend{
	"memory": func(*testing.T) backend.Backend { return memory.New().Backend() },
	"sqlite": func(t *testing.T) backend.Backend {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leases.db"), sqlite.Config{})
		return onClaims(t, s, err)
	},
	"postgres": func(t *testing.T) backend.Backend {
		s, err := postgres.Open(t.Context(), databases.PostgreSQL(t).Database(t), postgres.Config{})
		return onClaims(t, s, err)
	},
	"mongodb": func(t *testing.T) backend.Backend {
		s, err := mongodb.Open(t.Context(), ferretDB(t), mongodb.Config{})
		return onClaims(t, s, err)
	},
	"server": func(t *testing.T) backend.Backend {
		b, err := remote.New(remote.Config{Endpoints: []string{ownServer(t)}})
		return opened(t, b, err)
	},
	"etcd": func(t *testing.T) backend.Backend {
		b, err := etcd.New(etcd.Config{Endpoints: []string{ownServer(t)}})
		return opened(t, b, err)
	},
}

// onClaims returns the backend on a store of records.
func onClaims(t *testing.T, s claim.Store, err error) backend.Backend {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	b, err := claimed.New(s)
	return opened(t, b, err)
}

// opened returns a store that the end of the test closes.
func opened[S backend.Backend](t *testing.T, s S, err error) backend.Backend {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ownServer starts a server, and returns its address.
func ownServer(t *testing.T) string {
	t.Helper()
	addr, stop, err := endpointstest.Serve("127.0.0.1:0", t.TempDir(), server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return addr
}

// ferretDB starts FerretDB, and returns its URI.
func ferretDB(t *testing.T) string {
	t.Helper()
	if !required.Is("ferretdb") {
		t.Skip("FerretDB takes minutes to compile the first time: LEASEKEEPER_TEST_REQUIRE=ferretdb,chromium runs this test")
	}
	program := filepath.Join(t.TempDir(), "serve")
	if text, err := exec.Command("go", "build", "-C", "../ferrettest", "-o", program, "./serve").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	serve := exec.Command(program, t.TempDir())
	in, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // ends it
		if err := serve.Wait(); err != nil {
			t.Error(err)
		}
	})
	uri, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(uri)
}

// TestEveryBackendHasItsPages opens each page of each store: a name is held and waited for, and is released while its page
// is open.
func TestEveryBackendHasItsPages(t *testing.T) {
	for kind, open := range backends {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := visit(t, open(t), nil)
			l := s.claim(job, "alice", time.Hour)
			s.openWhen("names", `document.querySelector(".rows tbody")?.textContent.includes("alice") ?? false`)
			for _, page := range pages {
				s.open(page)
				if page == "holder?id=alice" && !strings.Contains(ask[string](s, "document.body.textContent"), job) {
					t.Error("the page of the holder does not show its name")
				}
			}
			s.open("name?name=" + job)
			s.until(cell("holder") + `.textContent === "alice"`)
			if err := s.store.Release(context.Background(), l); err != nil {
				t.Fatal(err)
			}
			s.until(cell("state") + `.textContent === "Free"`)
			s.clean()
		})
	}
}
