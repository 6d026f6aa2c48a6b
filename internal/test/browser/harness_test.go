package browser

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
)

// patience bounds each wait of a test.
const patience = 30 * time.Second

// site is a console on a store, and one page of a browser.
type site struct {
	*testing.T
	*Tab
	root   string
	store  backend.Backend
	claims uint64 // made so far
}

// shared is the browser of all tests: each has a page of its own. The browser trusts servers with the certificate.
var shared struct {
	sync.Mutex
	*Browser
	authority *authority.Authority
	cert, key []byte // in PEM form
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "leasekeeper-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	profile = dir
	defer func() {
		if shared.Browser != nil {
			shared.Close()
		}
	}()
	return databases.Main(m)
}

// profile is the folder of the browser's profile.
var profile string

// browser returns the browser of all tests. The test is skipped if there is none.
func browser(t *testing.T) *Browser {
	t.Helper()
	required.Program(t, "chromium", Program)
	shared.Lock()
	defer shared.Unlock()
	if shared.Browser == nil {
		shared.authority = authority.New(t, "test")
		shared.cert, shared.key = shared.authority.Issue("server")
		block, _ := pem.Decode(shared.cert)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Start(context.Background(), profile, cert)
		if err != nil {
			t.Fatal(err)
		}
		shared.Browser = b
	}
	return shared.Browser
}

// visit starts a console on a store, and opens its overview.
func visit(t *testing.T, store backend.Backend, change func(*webconsole.Config)) *site {
	t.Helper()
	b := browser(t)
	l, err := webconsole.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := webconsole.Config{Store: store, Label: "test", Write: true, Hosts: webconsole.HostsOf(l)}
	if change != nil {
		change(&cfg)
	}
	c, err := webconsole.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- webconsole.Serve(ctx, l, c) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	tab, end, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s := &site{T: t, Tab: tab, root: "http://" + l.Addr().String() + "/", store: store}
	s.do(chromedp.Navigate(s.root + "?token=" + c.Token()))
	s.until(`location.search === "" && document.querySelector(".lamp.on") !== null`)
	return s
}

// do runs actions, which must succeed.
func (s *site) do(actions ...chromedp.Action[chromedp.Void]) {
	s.Helper()
	if err := s.Do(actions...); err != nil {
		s.Fatal(err)
	}
}

// until waits until a condition of the page is true. A condition that cannot be evaluated, as while another page loads, is
// not true.
func (s *site) until(condition string) {
	s.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var met bool
		met, err = chromedp.Run(s.Context, chromedp.Evaluate[bool](condition))
		if met && err == nil {
			return
		}
	}
	text, _ := chromedp.Run(s.Context, chromedp.Text("body"))
	s.Fatalf("%s is not true (%v)\nthe page shows:\n%s", condition, err, text)
}

// live waits until the page receives updates.
func (s *site) live() {
	s.Helper()
	s.until(`document.querySelector(".lamp.on") !== null`)
}

// open opens a page of the console.
func (s *site) open(page string) {
	s.Helper()
	s.do(chromedp.Navigate(s.root + page))
	s.live()
}

// openWhen opens a page again and again until a condition is true on it. A list of names is what the console read last, and
// its rows stay those with which it was opened.
func (s *site) openWhen(page, condition string) {
	s.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s.open(page); ask[bool](s, condition) {
			return
		}
	}
	s.Fatalf("%s: %s does not become true", page, condition)
}

// ask evaluates an expression on the page.
func ask[T any](s *site, expression string) T {
	s.Helper()
	v, err := chromedp.Run(s.Context, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		s.Fatalf("%s: %v", expression, err)
	}
	return v
}

// cell is the expression of the element of a cell.
func cell(key string) string { return fmt.Sprintf(`document.querySelector('[data-k="%s"]')`, key) }

// clean fails if a script threw, wrote an error or a warning, or if a request left the console.
func (s *site) clean() {
	s.Helper()
	for _, text := range s.Errors() {
		s.Error(text)
	}
	for _, url := range s.Requests() {
		if !strings.HasPrefix(url, s.root) {
			s.Errorf("the page requested %s", url)
		}
	}
}

// claim makes a claim for a name.
func (s *site) claim(name, holder string, ttl time.Duration) backend.Lease {
	s.Helper()
	s.claims++
	var id backend.ID
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixNano()))
	binary.BigEndian.PutUint64(id[8:], s.claims)
	card := backend.Card{Host: "host-of-" + holder, PID: 7, Text: "version 1.2\nregion eu"}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, _, err := s.store.Claim(ctx, backend.Claim{ID: id, Name: name, Holder: backend.Holder{ID: holder, Card: card}, TTL: ttl, Wait: true})
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// info returns what the store knows of a name.
func (s *site) info(name string) backend.Info {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	i, err := s.store.Get(ctx, name)
	if err != nil {
		s.Fatal(err)
	}
	return i
}

// movement is by how much the content of a page has moved without input since it was loaded: the sum of what the browser
// counts for "cumulative layout shift", and the elements that moved.
type movement struct {
	Sum  float64  `json:"sum"`
	What []string `json:"what"`
}

func (s *site) movement() movement {
	s.Helper()
	return ask[movement](s, `new Promise((resolve) => {
		let sum = 0;
		const what = [];
		new PerformanceObserver((list) => {
			for (const e of list.getEntries()) {
				if (e.hadRecentInput) continue;
				sum += e.value;
				const at = (r) => [r.x, r.y, r.width, r.height].join(" ");
				for (const one of e.sources) what.push(Math.round(e.startTime) + " ms: " + at(one.previousRect) + " to " + at(one.currentRect) + ": " +
					(one.node?.outerHTML ?? one.node?.textContent ?? "removed").slice(0, 300));
			}
		}).observe({type: "layout-shift", buffered: true});
		setTimeout(() => resolve({sum, what}), 100);
	})`)
}
