package browser

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server"
)

// onServer starts a server, with TLS or without, and opens the overview of its console.
func onServer(t *testing.T, secure bool) (s *site, conn *grpc.ClientConn) {
	t.Helper()
	b := browser(t)
	logins := server.NewLogins(time.Hour)
	n, err := node.Start(t.Context(), node.Config{Dir: t.TempDir(), LoggedIn: logins.Learn})
	if err != nil {
		t.Fatal(err)
	}
	stop := func(what string, end func(context.Context) error) func() {
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := end(ctx); err != nil {
				t.Errorf("stop the %s: %v", what, err)
			}
		}
	}
	t.Cleanup(stop("node", n.Stop))
	<-n.Ready()
	cfg := server.Config{ListenClient: "127.0.0.1:0", ListenHTTP: "127.0.0.1:0", Logins: logins, BcryptCost: 4}
	scheme, trust, transport := "http", (*tls.Config)(nil), insecure.NewCredentials()
	if secure {
		cfg.CertFile, cfg.KeyFile = writeFile(t, "cert.pem", shared.cert), writeFile(t, "key.pem", shared.key)
		scheme, trust = "https", shared.authority.Trust()
		transport = credentials.NewTLS(trust)
	}
	front, err := server.New(cfg, n)
	if err == nil {
		err = front.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop("server", front.Stop))
	conn, err = grpc.NewClient(front.Addr(), grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	store, err := remote.New(remote.Config{Endpoints: []string{front.Addr()}, TLS: trust})
	tab, end, err2 := b.Open()
	if err2 != nil {
		t.Fatal(err2)
	}
	t.Cleanup(end)
	s = &site{T: t, Tab: tab, root: scheme + "://" + front.HTTPAddr() + "/console/", store: opened(t, store, err)}
	s.open("")
	return s, conn
}

// writeFile writes a file of the test, and returns its path.
func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// addUsers makes root, and alice who may watch and administer names below jobs/. Their passwords are their names.
func addUsers(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := enableAccess(ctx, conn, user{"alice", "jobs/", leasekeeperv1.NameRight_ADMINISTER}); err != nil {
		t.Fatal(err)
	}
}

func TestServerHasPagesAboutItsCluster(t *testing.T) {
	s, conn := onServer(t, false)
	s.until(cell("cluster.leader") + `.textContent === "default"`)
	s.open("cluster")
	s.until(cell("cluster.up") + `.textContent === "1 of 1"`)
	s.open("audit")
	s.until(cell("state") + `.textContent.includes("has not begun")`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := pb.NewAuthClient(conn).UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: "root"}); err != nil {
		t.Fatal(err)
	}
	s.until(cell("audit.0.act") + `.textContent === "user.add"`)
	s.clean()
}

// TestForeignLocksAreListed shows locks of etcd's recipe on our server: one that is held and waited for, and then released.
func TestForeignLocksAreListed(t *testing.T) {
	for _, width := range []int64{1280, 390} {
		s, conn := onServer(t, false)
		if err := s.Size(width, 844, "light"); err != nil {
			t.Fatal(err)
		}
		held := s.lockByRecipe(conn, "builds/main")
		s.lockByRecipe(conn, "builds/main")
		row := `document.querySelector(".foreign tbody tr")`
		s.openWhen("foreign", row+`?.textContent.includes("builds/main") ?? false`)
		number := row + `.querySelector(".c-waiting").textContent`
		s.until(number + ` === "1"`)
		s.lockByRecipe(conn, "builds/other")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := pb.NewLeaseClient(conn).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: held}); err != nil {
			t.Fatal(err)
		}
		s.until(number + ` === "0"`)
		s.still()
		s.clean()
		if wide := ask[int64](s, "document.documentElement.scrollWidth"); wide > width {
			t.Errorf("the page is %d pixels wide, and the window %d", wide, width)
		}
	}
}

// TestPagesOfAServerKeepTheirPlaces looks at pages whose figures change each second.
func TestPagesOfAServerKeepTheirPlaces(t *testing.T) {
	s, _ := onServer(t, false)
	held := s.claim(job, "alice", time.Hour)
	for _, width := range []int64{1280, 390} {
		if err := s.Size(width, 844, "light"); err != nil {
			t.Fatal(err)
		}
		for _, page := range []string{"", "cluster", "audit", "name?name=" + job} {
			s.open(page)
			waits := s.claim(job, "bob", time.Hour)
			if err := s.store.Renew(context.Background(), []backend.Lease{held}, func(int, backend.Renewal) {}); err != nil {
				t.Error(err)
			}
			s.until(`performance.now() > 2500`)
			if err := s.store.Release(context.Background(), waits); err != nil {
				t.Error(err)
			}
			s.until(`performance.now() > 4000`)
			s.still()
			if wide := ask[int64](s, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%q is %d pixels wide, and the window %d", page, wide, width)
			}
		}
	}
	s.clean()
}

// lockByRecipe takes or waits for a lock as etcd's client libraries do, and returns its lease.
func (s *site) lockByRecipe(conn *grpc.ClientConn, name string) (lease int64) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	granted, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600})
	if err != nil {
		s.Fatal(err)
	}
	key := fmt.Appendf(nil, "%s/%x", name, granted.ID)
	if _, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: key, Lease: granted.ID}); err != nil {
		s.Fatal(err)
	}
	return granted.ID
}

// still fails if the content of the page has moved since it was loaded.
func (s *site) still() {
	s.Helper()
	if m := s.movement(); m.Sum != 0 {
		s.Errorf("the content moved by %g:\n%q", m.Sum, m.What)
	}
}

// login fills in the form to log in. The password of a user is its name.
func (s *site) login(user string) {
	s.Helper()
	s.until(`document.querySelector("#password") !== null`)
	s.still()
	s.do(
		chromedp.SendKeys("#user", user),
		chromedp.SendKeys("#password", user),
		chromedp.Click(`.login button[type="submit"]`),
	)
	s.until(`document.querySelector("#password") === null`)
}

func TestLoginAndRevoke(t *testing.T) {
	t.Run("plain", func(t *testing.T) { loginAndRevoke(t, false) })
	t.Run("TLS", func(t *testing.T) { loginAndRevoke(t, true) })
}

// loginAndRevoke follows a deep link, logs in, revokes a lease with the right, and is refused without it.
func loginAndRevoke(t *testing.T, secure bool) {
	s, conn := onServer(t, secure)
	s.claim(job, "alice", time.Hour)
	s.claim("other/name", "bob", time.Hour)
	addUsers(t, conn)
	s.do(chromedp.Navigate(s.root + "name?name=" + job))
	s.login("alice")
	s.until(cell("holder") + `?.textContent === "alice"`)
	s.live()
	s.still()
	if secret := ask[bool](s, `location.protocol === "https:"`); secret != secure {
		t.Errorf("the page came over TLS: %v", secret)
	}
	s.revoke()
	s.until(cell("state") + `?.textContent === "Free"`)
	s.openWhen("names", `document.querySelector(".rows") !== null && !document.body.textContent.includes("other/name")`)
	s.do(chromedp.Navigate(s.root + "name?name=other/name"))
	s.until(`document.querySelector("h1")?.textContent === "Permission denied"`)
	s.open("names")
	s.do(chromedp.Click(`.out button[type="submit"]`))
	s.until(`document.querySelector("#password") !== null`)
	s.login("root")
	s.live()
	s.open("audit")
	s.until(cell("audit.0.act") + `.textContent === "name.revoke"`)
	s.until(cell("audit.0.who") + `.textContent === "alice"`)
	s.still()
	s.clean()
}
