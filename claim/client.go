package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
)

// TTLs that a [Client] grants.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 366 * 24 * time.Hour
)

// Options are how a [Client] counts time, and how patient it is. The zero value is right for a program.
type Options struct {
	// Clock is what it counts by. The default is this machine's clocks, together with their Domain.
	Clock driver.Clock
	// Domain is that of the Clock. A Clock that is given without one belongs to this client alone.
	Domain clock.Domain
	// Drift bounds how wrong any clock's rate is. It must be the same for all clients of a namespace. The
	// default is [clock.DefaultDrift].
	Drift clock.Drift
	// Attempts is how often a claim is tried if others change the record meanwhile. Renewals and releases
	// are tried four times as often. The default is 8.
	Attempts int
	// Acknowledge is how often at most renewals also write the clock record of the domain, if the store is
	// one of [Clocks]. Others can then infer earlier that a silent holder's leases are over. 0 is never.
	Acknowledge time.Duration
	// Pause waits between attempts; the default sleeps. A simulation puts its own time here.
	Pause func(ctx context.Context, d time.Duration) error
	// Wall tells the time that is shown to people; the default is [time.Now]. Nothing is decided by it, but
	// for which tombstones [Client.Collect] finds old enough.
	Wall func() time.Time
}

// Client makes, keeps and ends leases in a [Store]. It is safe for concurrent use.
type Client struct {
	store Store
	opts  Options
}

// NewClient returns a client of s. It does not close s.
func NewClient(s Store, o Options) (*Client, error) {
	return &Client{store: s, opts: o}, nil
}

// Request asks for a name.
type Request struct {
	Name string
	// ID is chosen at random for each request and becomes the incarnation of the tenancy. Asking again with
	// the same one never makes two.
	ID     driver.ID
	Holder driver.Holder
	TTL    time.Duration
	// Waits says that this client will ask again until it gets the name. What it has seen of the holder is
	// then kept in the store only when that holder seems to have fallen silent, not with each of his renewals;
	// call [Client.Sight] when the waiting is given up.
	Waits bool
}

// State is what a client can tell of one name. Of a name that was never held, Record has the name alone.
type State struct {
	Record Record
	Floor  driver.Token
	// Latest is until when the lease may last on this client's clocks, and Ends how long that is, if it is
	// held and not renewed. Pins are not considered.
	Latest clock.Instant
	Ends   time.Duration
	// Over says that the name can be claimed now: it is vacant, or what its holder was promised is surely over
	// and nothing pins it.
	Over bool
	Err  error // only from List: why the record can not be read
}

// Collection is which tombstones to remove.
type Collection struct {
	Prefix string
	// Age is how long a name must have been vacant by the wall clock. 0 is all.
	Age time.Duration
	// Progress, if given, is called after each page: how many names were looked at, and removed.
	Progress func(seen, removed int)
}

func notYet() error { return fmt.Errorf("%w: not yet", driver.ErrUnsupported) }

// Claim takes a name that is free, or that surely is over. Else it returns a [*driver.HeldError]. With
// [driver.ErrUnknownOutcome] it returns a lease too, which may be released, or claimed again with the same ID.
func (c *Client) Claim(ctx context.Context, q Request) (*Lease, error) { return nil, notYet() }

// Extend prolongs a lease to at least ttl from now; 0 stands for what was granted.
func (c *Client) Extend(ctx context.Context, l *Lease, ttl time.Duration) error { return notYet() }

// ExtendAll prolongs many leases by what they were granted, with one statement where the store can do that,
// and reports for each once, on the goroutine of its caller. One in trouble does not hold up the others.
func (c *Client) ExtendAll(ctx context.Context, leases []*Lease, report func(i int, err error)) error {
	return notYet()
}

// Release gives a name back. It is no error if the lease has ended already.
func (c *Client) Release(ctx context.Context, l *Lease) error { return notYet() }

// Expire makes a name vacant whose lease is surely over.
func (c *Client) Expire(ctx context.Context, name string) error { return notYet() }

// Get tells about a name.
func (c *Client) Get(ctx context.Context, name string) (State, error) { return State{}, notYet() }

// List tells about names, as [Store.List] does.
func (c *Client) List(ctx context.Context, prefix, after string, limit int) ([]State, error) {
	return nil, notYet()
}

// Pin keeps a name from being taken or ended by others until it is unpinned for the same reason.
func (c *Client) Pin(ctx context.Context, name, why string) error { return notYet() }

// Unpin takes one reason back, or all if why is empty.
func (c *Client) Unpin(ctx context.Context, name, why string) error { return notYet() }

// Adopt continues a tenancy on purpose, under the same token. Who had it before has then lost it.
func (c *Client) Adopt(ctx context.Context, name string, t driver.Token, by driver.Holder, id driver.ID) (*Lease, error) {
	return nil, notYet()
}

// Announce changes the text on the holder's card.
func (c *Client) Announce(ctx context.Context, l *Lease, text string) error { return notYet() }

// Revoke ends the tenancy of somebody else: as soon as it is over, or now.
func (c *Client) Revoke(ctx context.Context, name string, t driver.Token, reason string, now bool) error {
	return notYet()
}

// Refresh begins to count for all names how long their holders have been silent, and keeps that in the store.
func (c *Client) Refresh(ctx context.Context) error { return notYet() }

// Sight keeps in the store since when this client has seen the holder of the name silent, so that another
// process of this machine can count on from there.
func (c *Client) Sight(ctx context.Context, name string) error { return notYet() }

// Collect removes the records of names that nobody holds or pins, and says how many.
func (c *Client) Collect(ctx context.Context, what Collection) (removed int, err error) {
	return 0, notYet()
}

// RaiseFloor makes all later tokens larger than t.
func (c *Client) RaiseFloor(ctx context.Context, t driver.Token) (driver.Token, error) {
	return 0, notYet()
}
