package webconsole

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Defaults of the limits in [Config].
const (
	DefaultMaxPages    = 64
	DefaultMaxRequests = 16
)

// Config is the configuration of a [Console].
type Config struct {
	// Store is what the console shows. The console does not close it.
	Store backend.Backend
	// Label names the store for people. It contains no password.
	Label string
	// URL is what programs open the store by, without a password. Texts to copy have it; "" means Label.
	URL string
	// Write allows changes. Otherwise the console is read-only. It means nothing with Access.
	Write bool
	// Access decides about each request; nil means that a browser must show [Console.Token], and then sees everything.
	Access Access
	// Base is the path below which the pages are served, without a slash at its end. The handler gets paths without it.
	Base string
	// Hosts are the names by which browsers may reach the console, with the port if they use one. A page of another site
	// could otherwise point a name of its own at this console. With Access the caller checks that.
	Hosts []string
	// Crowded reports whether connections run short. The console then closes each connection after its answer. nil means never.
	Crowded func() bool
	// MaxNames is how many names the console keeps; 0 means 1,000,000, which take about 400 MB.
	MaxNames int
	// MaxPages is how many open pages receive updates; 0 means [DefaultMaxPages].
	MaxPages int
	// MaxRequests is how many other requests are served at a time, and how many changes wait or run; 0 means
	// [DefaultMaxRequests].
	MaxRequests int
	// Log receives failures of the console itself; nil means none.
	Log *slog.Logger
	// Now and Day are the clocks; nil means those of the machine.
	Now func() clock.Instant
	Day func() time.Time
}

// Console serves the pages. It is an [http.Handler] for the root of a path: use [http.StripPrefix] for any other. Make one
// with [New]. It is safe for concurrent use.
type Console struct {
	cfg      Config
	reader   *reader
	mux      *http.ServeMux
	keys     keys
	pages    places        // of open pages
	requests places        // of other requests, except those of forms that change names
	forms    places        // of requests that change names
	tokens   places        // of tokens that are checked, outside sessions
	changes  chan struct{} // has room for the one change that runs
	logins   places        // of logins that are checked
	sessions *sessions
	scopes   *scopes
	server   bool     // the store is a [Server]
	foreign  []string // kinds of locks of other programs that the store recognizes

	serving context.Context // ends with Close
	stop    context.CancelFunc
	own     sync.WaitGroup
}

// New returns a console, and starts its reader. The caller must call [Console.Close].
func New(cfg Config) (*Console, error) {
	if cfg.Store == nil {
		return nil, fmt.Errorf("webconsole: %w: there is no store", backend.ErrInvalid)
	}
	if cfg.MaxPages == 0 {
		cfg.MaxPages = DefaultMaxPages
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = DefaultMaxRequests
	}
	if cfg.MaxNames == 0 {
		cfg.MaxNames = mostNames
	}
	if cfg.MaxNames < 1 || cfg.MaxPages < 1 || cfg.MaxRequests < 1 {
		return nil, fmt.Errorf("webconsole: %w: the limits %d, %d and %d are not positive", backend.ErrInvalid, cfg.MaxNames, cfg.MaxPages, cfg.MaxRequests)
	}
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	if cfg.Day == nil {
		cfg.Day = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Console{
		cfg: cfg, reader: newReader(cfg), keys: newKeys(),
		pages: make(places, cfg.MaxPages), requests: make(places, cfg.MaxRequests), changes: make(chan struct{}, 1),
		forms: make(places, cfg.MaxRequests), tokens: make(places, mostLogins),
		logins: make(places, mostLogins), sessions: newSessions(cfg.Now), scopes: newScopes(cfg.Now),
		foreign: foreignKinds(cfg.Store),
	}
	_, c.server = cfg.Store.(Server)
	c.serving, c.stop = context.WithCancel(context.Background())
	c.mux = c.routes()
	c.own.Go(func() { c.reader.run(c.serving) })
	return c, nil
}

// Close ends the updates of all open pages, and the reader. It waits for the reader.
func (c *Console) Close() {
	c.stop()
	c.own.Wait()
}

// Token is what a browser must show once, as ?token=, before it sees a page.
func (c *Console) Token() string { return c.keys.token }

func (c *Console) now() moment { return moment{c.cfg.Now(), c.cfg.Day()} }

// places are a limited number of places.
type places chan struct{}

// take takes a place, and reports whether there was one.
func (p places) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p places) free() { <-p }

// keys are the secrets of one console. They live as long as it does.
type keys struct {
	token   string // of the link that the command prints
	session string // of the cookie
	csrf    string // of the forms
}

func newKeys() keys { return keys{secret(), secret(), secret()} }

func secret() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
