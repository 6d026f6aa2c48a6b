package browser

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
)

// job is the name in most tests.
const job = "jobs/nightly"

// pages are the pages of a store in which alice holds job.
var pages = []string{"", "names", "name?name=" + job, "holder?id=alice", "host?host=host-of-alice", "store", "cluster", "audit"}

func TestExpiryShowsWithoutReload(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	s.claim(job, "alice", 4*time.Second)
	s.open("name?name=" + job)
	s.until(cell("holder") + `.textContent === "alice"`)
	s.do(chromedp.Evaluate[chromedp.Void](`window.sameDocument = true`))
	s.until(cell("state") + `.textContent === "Free"`)
	if !ask[bool](s, `window.sameDocument === true`) {
		t.Error("the page was loaded again")
	}
	s.clean()
}

// TestBarRunsDown looks at the bar and the seconds beside it while the store has no news.
func TestBarRunsDown(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	s.claim(job, "alice", time.Minute)
	for _, page := range []string{"name?name=" + job, "names"} {
		const bar = `document.querySelector(".lease .bar rect").getBoundingClientRect().width`
		s.openWhen(page, `document.querySelector(".lease .bar rect") !== null`)
		before := ask[float64](s, bar)
		s.until(fmt.Sprintf("%s < %g && %s > 0", bar, before, bar))
		seconds := `parseInt(document.querySelector(".lease span").textContent)`
		first := ask[float64](s, seconds)
		s.until(fmt.Sprintf("%s < %g", seconds, first))
	}
	s.clean()
}

func TestRenewalFillsTheBar(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	l := s.claim(job, "alice", time.Minute)
	s.open("name?name=" + job)
	seconds := `parseInt(document.querySelector(".lease span").textContent)`
	s.until(seconds + " <= 57")
	if err := s.store.Renew(context.Background(), []backend.Lease{l}, func(_ int, r backend.Renewal) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	s.until(seconds + " > 57")
	s.clean()
}

// revoke revokes the lease of the name on the open page, at once.
func (s *site) revoke() {
	s.Helper()
	form := `form[action="revoke"] `
	s.do(
		chromedp.Click(`details:has(form[action="revoke"]) summary`),
		chromedp.SendKeys(form+`input[name="reason"]`, "it hangs"),
		chromedp.Click(form+`input[name="now"]`),
		chromedp.Click(form+`button[type="submit"]`),
	)
}

func TestRevokeFromThePage(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	s.claim(job, "alice", time.Hour)
	s.claim(job, "bob", time.Hour)
	s.open("name?name=" + job)
	s.revoke()
	s.until(cell("holder") + `.textContent === "bob"`)
	s.until(cell("history.1.why") + `.textContent === "revoked: it hangs"`)
	if i := s.info(job); i.Holder.ID != "bob" {
		t.Errorf("%q holds the name", i.Holder.ID)
	}
	s.clean()
}

// TestReadOnlyConsole sends by script the form that its pages do not have.
func TestReadOnlyConsole(t *testing.T) {
	s := visit(t, memory.New().Backend(), func(cfg *webconsole.Config) { cfg.Write = false })
	s.claim(job, "alice", time.Hour)
	for _, page := range pages {
		s.open(page)
		if n := ask[int](s, `document.querySelectorAll('form[method="post"]').length`); n != 0 {
			t.Errorf("%s has %d forms that change something", page, n)
		}
	}
	code := ask[int](s, `fetch("revoke", {method: "POST", body: new URLSearchParams({name: "jobs/nightly", token: "1", reason: "x", now: "1"})}).then((r) => r.status)`)
	if code != 403 {
		t.Errorf("a revocation was answered with %d", code)
	}
	if i := s.info(job); i.Holder.ID != "alice" {
		t.Errorf("%q holds the name", i.Holder.ID)
	}
}

// TestMarkupIsText shows names, holders and cards that would run a script or load a picture if they were not text.
func TestMarkupIsText(t *testing.T) {
	const evil = `"><img src=x onerror=window.hit=1><script>window.hit=1</script>'`
	s := visit(t, memory.New().Backend(), nil)
	s.claim(evil, evil, time.Hour)
	for _, page := range []string{"", "names", "name?name=" + url.QueryEscape(evil), "holder?id=" + url.QueryEscape(evil), "host?host=" + url.QueryEscape("host-of-"+evil)} {
		s.openWhen(page, fmt.Sprintf("document.body.textContent.includes(%q)", evil))
		if ask[bool](s, `window.hit === 1 || document.querySelector("img, main script") !== null`) {
			t.Errorf("%s made elements of a text", page)
		}
	}
	s.clean()
}

// TestPolicyStopsWhatIsInjected adds to a page what an attacker would, and finds that the browser does not run or load it.
func TestPolicyStopsWhatIsInjected(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	stopped := ask[[]string](s, `new Promise((resolve) => {
		const stopped = [];
		document.addEventListener("securitypolicyviolation", (e) => {
			stopped.push(e.effectiveDirective);
			if (stopped.length === 4) resolve(stopped.sort());
		});
		const add = (tag, set) => { const e = document.createElement(tag); set(e); document.body.append(e); };
		add("script", (e) => { e.textContent = "window.hit = 1"; });
		add("img", (e) => { e.src = "http://127.0.0.1:1/x.png"; });
		add("iframe", (e) => { e.src = "http://127.0.0.1:1/"; });
		fetch("http://127.0.0.1:1/").catch(() => {});
		setTimeout(() => resolve(stopped.sort()), 10000);
	})`)
	if want := "[connect-src frame-src img-src script-src-elem]"; fmt.Sprint(stopped) != want {
		t.Errorf("stopped %v, want %s", stopped, want)
	}
	if ask[bool](s, "window.hit === 1") {
		t.Error("an injected script ran")
	}
}

// TestNothingMoves looks at pages whose content changes: a name is claimed, waited for, released and free.
func TestNothingMoves(t *testing.T) {
	for _, width := range []int64{1280, 390} {
		for _, page := range pages {
			t.Run(fmt.Sprintf("%s at %d", page, width), func(t *testing.T) {
				t.Parallel()
				nothingMoves(t, page, width)
			})
		}
	}
}

func nothingMoves(t *testing.T, page string, width int64) {
	s := visit(t, memory.New().Backend(), nil)
	if err := s.Size(width, 844, "light"); err != nil {
		t.Fatal(err)
	}
	l := s.claim(job, "alice", time.Hour)
	s.open(page)
	s.claim("jobs/other", "bob", 2*time.Second)
	s.until(`performance.now() > 1500`) // the list has one more name, and then more
	for i := range 10 {
		s.claim(fmt.Sprintf("jobs/more/%d", i), "bob", 2*time.Second)
	}
	s.claim(job, "carol", 2*time.Second)
	if err := s.store.Release(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	s.until(`performance.now() > 5000`) // the other leases have ended
	if m := s.movement(); m.Sum != 0 {
		t.Errorf("the content moved by %g:\n%q", m.Sum, m.What)
	}
	s.clean()
}

func TestPhoneNeedsNoSidewaysScrolling(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	s.claim("a/rather/long/name/of/a/job/that/nobody/would/want/to/read/on/a/phone/"+job, "alice", time.Hour)
	s.claim(job, "alice", time.Hour)
	if err := s.Size(390, 844, "light"); err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		s.open(page)
		if wide := ask[int](s, "document.documentElement.scrollWidth"); wide > 390 {
			t.Errorf("%q is %d pixels wide", page, wide)
		}
	}
}

// TestKeyboardReachesEverything goes through each page with the tabulator: each link, field and button is reached, and
// shows that it has the focus.
func TestKeyboardReachesEverything(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	s.claim(job, "alice", time.Hour)
	for _, page := range pages {
		s.open(page)
		s.do(chromedp.Evaluate[chromedp.Void](`{
			for (const d of document.querySelectorAll("details")) d.open = true;
			window.left = new Set([...document.querySelectorAll("a[href], input:not([type=hidden]), select, button, summary")].filter((e) => e.checkVisibility()));
			window.plain = [];
		}`))
		for range ask[int](s, "window.left.size") + 10 {
			s.do(chromedp.KeyEvent(kb.Tab))
			s.do(chromedp.Evaluate[chromedp.Void](`{
				const e = document.activeElement;
				window.left.delete(e);
				if (e !== document.body && getComputedStyle(e).outlineStyle === "none") window.plain.push(e.outerHTML);
			}`))
		}
		if left := ask[[]string](s, "[...window.left].map((e) => e.outerHTML)"); len(left) > 0 {
			t.Errorf("the keyboard does not reach these on %q:\n%q", page, left)
		}
		if plain := ask[[]string](s, "window.plain"); len(plain) > 0 {
			t.Errorf("these do not show the focus on %q:\n%q", page, plain)
		}
	}
}

func TestFilterAndPaging(t *testing.T) {
	s := visit(t, memory.New().Backend(), nil)
	for i := range 120 {
		s.claim(fmt.Sprintf("shard/%03d", i), "alice", time.Hour)
	}
	rows := `[...document.querySelectorAll(".rows tbody th")].map((e) => e.textContent)`
	s.openWhen("names", rows+`[0] === "shard/000"`)
	s.do(chromedp.Click(`a[rel="next"]`))
	s.until(rows + `[0] === "shard/050"`)
	s.do(chromedp.Click(`a[rel="next"]`))
	s.until(rows + `[0] === "shard/100"`)
	s.do(chromedp.SendKeys("#q", "shard/07"), chromedp.Submit("#q"))
	s.until(rows + `.length === 10`)
	if url := ask[string](s, "location.search"); url == "" {
		t.Error("the filtered list has no address of its own")
	}
	s.clean()
}
