package server

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// browser is a browser at the console of a server.
type browser struct {
	*front
	client *http.Client
}

func (f *front) browser() *browser {
	f.t.Helper()
	jar, err := cookiejar.New(nil)
	wantOK(f.t, err)
	transport := new(http.Transport)
	f.t.Cleanup(transport.CloseIdleConnections)
	return &browser{f, &http.Client{Jar: jar, Transport: transport}}
}

func (b *browser) url(path string) string {
	return "http://" + b.server.HTTPAddr() + "/console/" + path
}

// do sends a request and returns the status and the text of the answer.
func (b *browser) do(r *http.Request) (code int, text string) {
	b.t.Helper()
	resp, err := b.client.Do(r)
	wantOK(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	wantOK(b.t, err)
	return resp.StatusCode, string(body)
}

func (b *browser) get(path string) (code int, text string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.ctx(), http.MethodGet, b.url(path), nil)
	wantOK(b.t, err)
	return b.do(r)
}

// send sends a form, and follows the redirect.
func (b *browser) send(path string, fields ...string) (code int, text string) {
	b.t.Helper()
	values := make(url.Values)
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	r, err := http.NewRequestWithContext(b.ctx(), http.MethodPost, b.url(path), strings.NewReader(values.Encode()))
	wantOK(b.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+b.server.HTTPAddr())
	return b.do(r)
}

// login logs in. The password of a user is its name.
func (b *browser) login(user string) {
	b.t.Helper()
	if code, text := b.send("login", "user", user, "password", user, "next", "/names"); code != http.StatusOK || !strings.Contains(text, "<h1>Names</h1>") {
		b.t.Fatalf("login of %s: %d\n%s", user, code, text)
	}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// csrf returns the secret of the forms on the browser's pages.
func (b *browser) csrf() string {
	b.t.Helper()
	_, text := b.get("names")
	found := csrfField.FindStringSubmatch(text)
	if found == nil {
		b.t.Fatalf("the page has no form:\n%s", text)
	}
	return found[1]
}

// holdAs claims a name as a user. The lease lasts as long as the test.
func (f *front) holdAs(ctx context.Context, name string) (token uint64) {
	f.t.Helper()
	stream, err := f.names().Acquire(ctx, &leasekeeperv1.AcquireRequest{
		Name: name, Lease: newLeases(1), TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "holder-of-" + name},
	})
	wantOK(f.t, err)
	resp, err := stream.Recv()
	wantOK(f.t, err)
	return resp.Token
}

// While access is not enabled, everyone who reaches the port sees the pages, and nobody changes anything.
func TestConsoleIsReadOnlyWithoutUsers(t *testing.T) {
	f := startFront(t)
	token := f.holdAs(f.ctx(), "jobs/a")
	b := f.browser()
	for path, want := range map[string]string{
		"": "<h1>Overview</h1>", "names": "jobs/a", "name?name=jobs/a": "Attached keys", "name?name=jobs/a&format=json": `"attached_keys": [`, "cluster": "leader", "audit": "has not begun", "store": "leasekeeper",
	} {
		if code, text := b.get(path); code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d, without %q:\n%s", path, code, want, text)
		}
	}
	_, text := b.get("cluster?format=json")
	var cluster struct {
		Members []struct{ Role string }
	}
	if err := json.Unmarshal([]byte(text), &cluster); err != nil || len(cluster.Members) != 1 || cluster.Members[0].Role != "leader" {
		t.Errorf("the cluster is %s: %v", text, err)
	}
	if code, text := b.send("revoke", "name", "jobs/a", "token", fmt.Sprint(token), "reason", "r"); code != http.StatusForbidden || !strings.Contains(text, "access is not enabled") {
		t.Errorf("a revoke: %d\n%s", code, text)
	}
	if code, _ := b.send("login", "user", "root", "password", "root"); code != http.StatusConflict {
		t.Errorf("a login: %d", code)
	}
	if resp, err := f.names().Get(f.ctx(), &leasekeeperv1.GetRequest{Name: "jobs/a"}); err != nil || !resp.Info.Held || resp.Info.Revoked {
		t.Errorf("the name is %v: %v", resp, err)
	}
}

var storeOfCommand = regexp.MustCompile(`leasekeeper run --store (\S+) jobs/a -- COMMAND`)

// The texts to copy from the page of a name open the server as its store.
func TestTextsToCopyOpenTheServer(t *testing.T) {
	f := startFront(t)
	token := f.holdAs(f.ctx(), "jobs/a")
	_, text := f.browser().get("name?name=jobs/a")
	text = html.UnescapeString(text)
	found := storeOfCommand.FindStringSubmatch(text)
	if found == nil || !strings.Contains(text, fmt.Sprintf("leasekeeper.Open(ctx, %q)", found[1])) {
		t.Fatalf("the page names no store:\n%s", text)
	}
	b, err := backend.Open(f.ctx(), found[1])
	wantOK(t, err)
	defer b.Close(f.ctx())
	o, err := b.Get(f.ctx(), "jobs/a")
	wantOK(t, err)
	wantEqual(t, "token", uint64(o.Token), token)
}

func TestStoreURL(t *testing.T) {
	for client, want := range map[string]string{"http://127.0.0.1:1": "leasekeeper://127.0.0.1:1", "https://[::1]:2": "leasekeepers://[::1]:2"} {
		wantEqual(t, client, storeURL(client), want)
	}
}

func TestConsoleShowsUsersWhatTheyMayWatch(t *testing.T) {
	f := startWithUsers(t)
	f.holdAs(f.ctx(), "jobs/a")
	f.holdAs(f.ctx(), "other/b")
	f.addUsers()
	f.grantRight("jobs/", watch)
	b := f.browser()
	if code, text := b.get("names"); code != http.StatusUnauthorized || strings.Contains(text, "jobs/a") || !strings.Contains(text, `name="password"`) {
		t.Errorf("without a user: %d\n%s", code, text)
	}
	if code, text := b.get("names?format=json"); code != http.StatusUnauthorized || strings.Contains(text, "jobs/a") {
		t.Errorf("without a user, as JSON: %d\n%s", code, text)
	}
	if code, text := b.send("login", "user", "alice", "password", "wrong"); code != http.StatusUnauthorized || !strings.Contains(text, "no user with this name and password") {
		t.Errorf("with a wrong password: %d\n%s", code, text)
	}
	b.login("alice")
	for _, path := range []string{"", "names", "names?format=json", "?format=json", "holder?id=holder-of-other/b", "holder?format=json&id=holder-of-other/b"} {
		if code, text := b.get(path); code != http.StatusOK || strings.Contains(text, "nameother") || strings.Contains(text, `>other/b<`) || strings.Contains(text, `"name": "other/b"`) {
			t.Errorf("%q shows what alice may not watch: %d\n%s", path, code, text)
		}
	}
	if _, text := b.get("names"); !strings.Contains(text, "jobs/a") || !strings.Contains(text, "1 name<") {
		t.Errorf("the names of alice:\n%s", text)
	}
	for path, want := range map[string]int{
		"name?name=jobs/a": http.StatusOK, "name?name=other/b": http.StatusForbidden, "name?name=nothing": http.StatusForbidden,
		"updates?page=" + url.QueryEscape("/name?name=other/b"): http.StatusForbidden, "cluster": http.StatusOK, "audit": http.StatusForbidden,
	} {
		if code, text := b.get(path); code != want {
			t.Errorf("%s: %d, want %d\n%s", path, code, want, text)
		}
	}
	root := f.browser()
	root.login("root")
	if code, text := root.get("audit"); code != http.StatusOK || !strings.Contains(text, "access.enable") {
		t.Errorf("the audit log for root: %d\n%s", code, text)
	}
	f.revokeRight("jobs/", watch)
	if code, text := b.get("name?name=jobs/a"); code != http.StatusForbidden {
		t.Errorf("after the right was withdrawn: %d\n%s", code, text)
	}
	if code, text := b.get("names"); code != http.StatusOK || strings.Contains(text, "jobs/a") {
		t.Errorf("after the right was withdrawn, the names: %d\n%s", code, text)
	}
}

// A change through the console passes the checks of any other request of the user, and the audit log names the user.
func TestConsoleChangesWithTheRightsOfTheUser(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		mine, other := "jobs/"+t.Name(), "other/"+t.Name()
		tokens := map[string]uint64{mine: f.holdAs(f.as("root"), mine), other: f.holdAs(f.as("root"), other)}
		f.grantRight("jobs/", watch, administer)
		f.grantRight("other/", watch)
		b := f.browser()
		b.login("alice")
		if code, text := b.get("name?name=" + url.QueryEscape(other)); code != http.StatusOK {
			t.Errorf("a name that alice may watch: %d\n%s", code, text)
		}
		revoke := func(name, csrf string) (int, string) {
			return b.send("revoke", "name", name, "token", fmt.Sprint(tokens[name]), "reason", "it hangs", "now", "1", "csrf", csrf)
		}
		held := func(name string) bool {
			resp, err := f.names().Get(f.as("root"), &leasekeeperv1.GetRequest{Name: name})
			wantOK(t, err)
			return resp.Info.Held
		}
		csrf := b.csrf()
		if code, text := revoke(mine, "wrong"); code != http.StatusForbidden || !held(mine) {
			t.Errorf("with a form of another console: %d\n%s", code, text)
		}
		if code, text := revoke(other, csrf); code != http.StatusForbidden || !strings.Contains(text, "Permission denied") || !held(other) {
			t.Errorf("without the right: %d\n%s", code, text)
		}
		if code, text := revoke(mine, csrf); code != http.StatusOK || held(mine) {
			t.Errorf("with the right: %d\n%s", code, text)
		}
		log, err := f.names().Audit(f.as("root"), &leasekeeperv1.AuditRequest{ObjectPrefix: mine})
		wantOK(t, err)
		if len(log.Records) != 1 || log.Records[0].User != "alice" || log.Records[0].Address != "127.0.0.1" {
			t.Errorf("the audit log has %v", log.Records)
		}
		f.revokeRight("jobs/", watch, administer)
		f.revokeRight("other/", watch)
		if code, text := b.send("logout", "csrf", csrf); code != http.StatusOK || !strings.Contains(text, `name="password"`) {
			t.Errorf("logout: %d\n%s", code, text)
		}
		if code, _ := b.get("names"); code != http.StatusUnauthorized {
			t.Errorf("after logout: %d", code)
		}
	})
}

// A transfer needs the right to administer the name, and no permission for keys.
func TestConsoleTransfersToTheNextWaiter(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	f.grantRight("jobs/", watch, administer)
	token := f.holdAs(f.as("root"), "jobs/a")
	stream, err := f.names().Acquire(f.as("root"), &leasekeeperv1.AcquireRequest{
		Name: "jobs/a", Lease: newLeases(1), TtlMs: 60_000, Wait: true, Holder: &leasekeeperv1.Holder{Id: "next"},
	})
	wantOK(t, err)
	_, err = stream.Recv()
	wantOK(t, err)
	b := f.browser()
	b.login("alice")
	csrf := b.csrf()
	transfer := func(token uint64) (int, string) {
		return b.send("transfer", "name", "jobs/a", "token", fmt.Sprint(token), "csrf", csrf)
	}
	if code, text := transfer(token + 1); code != http.StatusConflict {
		t.Errorf("of a later tenure: %d\n%s", code, text)
	}
	if code, text := transfer(token); code != http.StatusOK || !strings.Contains(text, "next") {
		t.Errorf("of the tenure: %d\n%s", code, text)
	}
	resp, err := f.names().Get(f.as("root"), &leasekeeperv1.GetRequest{Name: "jobs/a"})
	wantOK(t, err)
	wantEqual(t, "holder", resp.Info.GetHolder().GetId(), "next")
}

// The cookie of a session is for the console and for no script, and a new password ends the session.
func TestConsoleSessions(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	b := f.browser()
	jar := b.client.Jar
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	form := strings.NewReader("user=alice&password=alice&next=" + url.QueryEscape("https://example.org/"))
	r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, b.url("login"), form)
	wantOK(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := b.client.Do(r)
	wantOK(t, err)
	resp.Body.Close()
	wantEqual(t, "status", resp.StatusCode, http.StatusSeeOther)
	wantEqual(t, "location", resp.Header.Get("Location"), "/console/")
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/console/" || strings.Contains(c.Value, ".") {
		t.Errorf("the cookie is %v", c)
	}
	r, err = http.NewRequestWithContext(f.ctx(), http.MethodPost, b.url("login"), strings.NewReader("user=alice&password=alice"))
	wantOK(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if code, text := b.do(r); code != http.StatusForbidden {
		t.Errorf("a login by another site: %d\n%s", code, text)
	}
	if code, _ := b.get("names"); code != http.StatusOK {
		t.Errorf("with the session: %d", code)
	}
	r, err = http.NewRequestWithContext(f.ctx(), http.MethodGet, b.url("updates?page=/"), nil)
	wantOK(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "cors")
	if code, text := b.do(r); code != http.StatusForbidden {
		t.Errorf("updates for another site: %d\n%s", code, text)
	}
	r, err = http.NewRequestWithContext(f.ctx(), http.MethodGet, b.url("names"), nil)
	wantOK(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	b.client.Jar = nil // a browser sends no cookie there
	if code, text := b.do(r); code != http.StatusOK || text != "The console opens.\n" {
		t.Errorf("a link of another site: %d\n%s", code, text)
	}
	b.client.Jar = jar
	_, err = f.auth.UserChangePassword(f.as("root"), &pb.AuthUserChangePasswordRequest{Name: "alice", Password: "other"})
	wantOK(t, err)
	if code, _ := b.get("names"); code != http.StatusUnauthorized {
		t.Errorf("after a new password: %d", code)
	}
}

// Without users, the console shows nothing to machines to which the port for clients is closed.
func TestConsoleIsClosedWhereClientsAre(t *testing.T) {
	cfg := anyPort()
	cfg.ListenHTTP = "0.0.0.0:0"
	f := startConfiguredWithUsers(t, cfg)
	_, port, err := net.SplitHostPort(f.server.HTTPAddr())
	wantOK(t, err)
	ask := func() int {
		resp, err := http.Get("http://127.0.0.1:" + port + "/console/names")
		wantOK(t, err)
		defer http.DefaultClient.CloseIdleConnections()
		defer resp.Body.Close()
		return resp.StatusCode
	}
	wantEqual(t, "status without users", ask(), http.StatusForbidden)
	f.addUsers()
	wantEqual(t, "status with users", ask(), http.StatusUnauthorized)
}

func TestConsoleCanBeTurnedOff(t *testing.T) {
	cfg := anyPort()
	cfg.ConsoleOff = true
	f := startWith(t, cfg, nil)
	if code, text := f.browser().get(""); code != http.StatusNotFound {
		t.Errorf("%d\n%s", code, text)
	}
}

// viewersAtOnce is how many of the viewers are connected at the same time. Each takes two descriptors of this process.
const viewersAtOnce = 400

// TestViewersBeyondTheLimitAreRefused opens pages ten thousand times. Those beyond the limit get status 503, and no renewal fails
// meanwhile.
func TestViewersBeyondTheLimitAreRefused(t *testing.T) {
	f := startFront(t)
	store, err := remote.New(remote.Config{Endpoints: []string{f.server.Addr()}})
	wantOK(t, err)
	defer func() { wantOK(t, store.Close(context.Background())) }()
	lease, _, err := store.Claim(f.ctx(), backend.Claim{ID: backend.ID{1}, Name: "jobs/a", Holder: backend.Holder{ID: "me"}, TTL: 10 * time.Second})
	wantOK(t, err)
	stop := make(chan struct{})
	renewed := make(chan int)
	go func() {
		n := 0
		defer func() { renewed <- n }()
		for {
			err := store.Renew(t.Context(), []backend.Lease{lease}, func(_ int, r backend.Renewal) {
				if r.Err != nil {
					t.Errorf("renewal %d: %v", n, r.Err)
				}
			})
			if err != nil {
				t.Errorf("renewal %d: %v", n, err)
				return
			}
			n++
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	const viewers = 10_000
	ctx, leave := context.WithCancel(f.ctx())
	var admitted, refused, next atomic.Int64
	var all sync.WaitGroup
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	target := f.browser().url("updates?page=" + url.QueryEscape("/names"))
	for range viewersAtOnce {
		all.Go(func() {
			for next.Add(1) <= viewers {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(r)
				switch {
				case err != nil:
					t.Errorf("a viewer: %v", err)
					return
				case resp.StatusCode == http.StatusOK:
					admitted.Add(1)
					io.Copy(io.Discard, resp.Body) // until leave
				case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("a viewer: %s", resp.Status)
				}
				resp.Body.Close()
				if admitted.Load()+refused.Load() >= viewers {
					leave()
				}
			}
		})
	}
	go func() {
		for admitted.Load()+refused.Load() < viewers && ctx.Err() == nil && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		leave()
	}()
	all.Wait()
	leave()
	close(stop)
	n := <-renewed
	wantEqual(t, "admitted", admitted.Load(), 64)
	wantEqual(t, "refused", refused.Load(), viewers-64)
	if n == 0 {
		t.Error("no renewal was made")
	}
	t.Logf("%d renewals while %d viewers were refused", n, refused.Load())
}
