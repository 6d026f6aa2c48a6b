package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server"
)

// onServer starts a server, and opens the overview of its console.
func onServer(t *testing.T) (s *site, conn *grpc.ClientConn) {
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
	front, err := server.New(server.Config{ListenClient: "127.0.0.1:0", ListenHTTP: "127.0.0.1:0", Logins: logins, BcryptCost: 4}, n)
	if err == nil {
		err = front.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop("server", front.Stop))
	conn, err = grpc.NewClient(front.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	store, err := remote.New(remote.Config{Endpoints: []string{front.Addr()}})
	tab, end, err2 := b.Open()
	if err2 != nil {
		t.Fatal(err2)
	}
	t.Cleanup(end)
	s = &site{T: t, Tab: tab, root: "http://" + front.HTTPAddr() + "/console/", store: opened(t, store, err)}
	s.open("")
	return s, conn
}

// addUsers makes root, and alice who may watch and administer names below jobs/. Their passwords are their names.
func addUsers(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	auth := pb.NewAuthClient(conn)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"root", "alice"} {
		must(auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: user, Password: user}))
	}
	must(auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "operators"}))
	must(leasekeeperv1.NewLeasekeeperClient(conn).GrantRight(ctx, &leasekeeperv1.GrantRightRequest{
		Role: "operators", Prefix: "jobs/", Rights: []leasekeeperv1.NameRight{leasekeeperv1.NameRight_WATCH, leasekeeperv1.NameRight_ADMINISTER},
	}))
	must(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "alice", Role: "operators"}))
	must(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
	must(auth.AuthEnable(ctx, &pb.AuthEnableRequest{}))
}

func TestServerHasPagesAboutItsCluster(t *testing.T) {
	s, conn := onServer(t)
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

// TestLoginAndRevoke follows a deep link, logs in, revokes a lease with the right, and is refused without it.
func TestLoginAndRevoke(t *testing.T) {
	s, conn := onServer(t)
	s.claim(job, "alice", time.Hour)
	s.claim("other/name", "bob", time.Hour)
	addUsers(t, conn)
	s.do(chromedp.Navigate(s.root + "name?name=" + job))
	login := func(user string) {
		s.until(`document.querySelector("#password") !== null`)
		s.do(
			chromedp.SendKeys("#user", user),
			chromedp.SendKeys("#password", user),
			chromedp.Click(`.login button[type="submit"]`),
		)
	}
	login("alice")
	s.until(cell("holder") + `?.textContent === "alice"`)
	s.live()
	s.revoke()
	s.until(cell("state") + `?.textContent === "Free"`)
	s.openWhen("names", `document.querySelector(".rows") !== null && !document.body.textContent.includes("other/name")`)
	s.do(chromedp.Navigate(s.root + "name?name=other/name"))
	s.until(`document.querySelector("h1")?.textContent === "Permission denied"`)
	s.open("names")
	s.do(chromedp.Click(`.out button[type="submit"]`))
	s.until(`document.querySelector("#password") !== null`)
	for _, url := range s.Requests() {
		if len(url) < len(s.root) || url[:len(s.root)] != s.root {
			t.Errorf("the page requested %s", url)
		}
	}
	login("root")
	s.live()
	s.open("audit")
	s.until(cell("audit.0.act") + `.textContent === "name.revoke"`)
	s.until(cell("audit.0.who") + `.textContent === "alice"`)
	for _, text := range s.Errors() {
		t.Error(text)
	}
}
