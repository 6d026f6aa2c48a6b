package browser

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Program is the program of the browser.
const Program = "chromium"

// Find returns the path of the browser.
func Find() (string, error) { return exec.LookPath(Program) }

// Tab is one page of a browser, and what went wrong on it. Its methods are safe for concurrent use.
type Tab struct {
	Context context.Context
	mu      sync.Mutex
	errors  []string
	urls    []string
}

// Browser is one program, with a profile of its own. Its methods are safe for concurrent use.
type Browser struct {
	context context.Context // of its first page, which stays empty
	end     func()
}

// Start starts a browser with a profile in the folder dir, until ctx ends or [Browser.Close] is called. It trusts servers with one
// of the certificates.
func Start(ctx context.Context, dir string, trusted ...*x509.Certificate) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Env("TMPDIR="+dir), chromedp.WSURLReadTimeout(time.Minute), chromedp.Flag("ignore-certificate-errors-spki-list", hashes(trusted)))
	allocated, endBrowser := chromedp.NewExecAllocator(ctx, options...)
	first, endFirst := chromedp.NewContext(allocated)
	b := &Browser{context: first, end: func() { endFirst(); endBrowser() }}
	if err := chromedp.Do(first); err != nil {
		b.end()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, nil
}

// hashes returns the hashes of the keys of certificates, in the form of Chromium's flag.
func hashes(certs []*x509.Certificate) string {
	var all []string
	for _, c := range certs {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		all = append(all, base64.StdEncoding.EncodeToString(sum[:]))
	}
	return strings.Join(all, ",")
}

// Close ends the browser and all its pages.
func (b *Browser) Close() { b.end() }

// Open opens an empty page. The function closes it.
func (b *Browser) Open() (tab *Tab, end func(), err error) {
	page, end := chromedp.NewContext(b.context)
	tab = &Tab{Context: page}
	err = chromedp.Listen(page, tab.note)
	if err == nil {
		_, err = chromedp.Call(page, network.Enable, network.EnableParams{})
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("open a page: %w", err)
	}
	return tab, end, nil
}

// note records errors and requests.
func (t *Tab) note(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		t.errors = append(t.errors, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			t.errors = append(t.errors, fmt.Sprintf("%s: %v", e.Type, e.Args))
		}
	case *network.EventRequestWillBeSent:
		t.urls = append(t.urls, e.Request.URL)
	}
}

// Errors returns what scripts of the page threw or wrote to the console as an error.
func (t *Tab) Errors() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.errors...)
}

// Requests returns the addresses of all requests of the page.
func (t *Tab) Requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.urls...)
}

// Do runs actions.
func (t *Tab) Do(actions ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(t.Context, actions...)
}

// Size sets the size of the page, and its colours to "light" or "dark".
func (t *Tab) Size(width, height int64, scheme string) error {
	if err := t.Do(chromedp.EmulateViewport(width, height, chromedp.EmulateScale(1))); err != nil {
		return err
	}
	_, err := chromedp.Call(t.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return err
}
