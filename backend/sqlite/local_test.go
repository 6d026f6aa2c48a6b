package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// otherBoot is a domain of this machine before it was last booted.
const otherBoot clock.Domain = "linux/00000000-0000-4000-8000-000000000000/time:[4026531834]"

// hostBoot and guestBoot are domains of two kernels that run at the same time.
const (
	hostBoot  clock.Domain = "linux/11111111-1111-4111-8111-111111111111/time:[4026531834]"
	guestBoot clock.Domain = "linux/22222222-2222-4222-8222-222222222222/time:[4026531834]"
)

// onOwnDisk and onAShare are what a machine sees of a file. The first is on the disk from which the machine
// runs. The other came through a file system behind which any kernel may be.
func onOwnDisk(string) (location, error) { return location{plain: true, own: true}, nil }
func onAShare(string) (location, error)  { return location{}, nil }

// kernel returns a client of a process under another kernel, which sees the same file in its own way.
func kernel(t *testing.T, path string, boot clock.Domain, sees func(string) (location, error)) *claim.Client {
	t.Helper()
	c, err := claim.NewClient(opened(t, path, Config{here: boot, look: sees}), claim.Options{Domain: boot, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryClaim(t *testing.T, c *claim.Client, name string) (*claim.Lease, error) {
	t.Helper()
	return c.Claim(t.Context(), claim.Request{Name: name, ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: "another"}, TTL: time.Hour})
}

// A virtual machine that reaches a file of its host is another kernel. That it is not this one does not mean
// that it is gone.
func TestFileSharedWithAVirtualMachine(t *testing.T) {
	for _, c := range []struct {
		what          string
		first, second clock.Domain
		sees          [2]func(string) (location, error)
		taken         bool
	}{
		{"the host comes after the guest", guestBoot, hostBoot, [2]func(string) (location, error){onAShare, onOwnDisk}, false},
		{"the guest comes after the host", hostBoot, guestBoot, [2]func(string) (location, error){onOwnDisk, onAShare}, false},
		{"two guests", guestBoot, hostBoot, [2]func(string) (location, error){onAShare, onAShare}, false},
		{"a machine that was booted again", guestBoot, hostBoot, [2]func(string) (location, error){onOwnDisk, onOwnDisk}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := newPath(t)
			if _, err := tryClaim(t, kernel(t, path, c.first, c.sees[0]), "x"); err != nil {
				t.Fatal(err)
			}
			_, err := tryClaim(t, kernel(t, path, c.second, c.sees[1]), "x")
			if c.taken && err != nil || !c.taken && !errors.Is(err, backend.ErrHeld) {
				t.Errorf("the name of a holder under another kernel: %v", err)
			}
		})
	}
}

// Processes under one kernel share its clocks, by whatever path they reach the file, and judge by them exactly.
func TestProcessesUnderOneKernelShareItsClocks(t *testing.T) {
	for _, sees := range []func(string) (location, error){onOwnDisk, onAShare} {
		path := newPath(t)
		one, two := kernel(t, path, guestBoot, sees), kernel(t, path, guestBoot, sees)
		l, err := one.Claim(t.Context(), claim.Request{Name: "x", ID: backend.ID{1}, Holder: backend.Holder{ID: "one"}, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := two.Get(t.Context(), "x"); err != nil || s.Latest != l.Until() {
			t.Errorf("it is known to end at %v, and ends at %v; %v", s.Latest, l.Until(), err)
		}
	}
}

func TestDomainOfASharedFileNamesNoBoot(t *testing.T) {
	for _, c := range []struct {
		place   location
		is, now clock.Domain
	}{
		{location{plain: true, own: true}, guestBoot, guestBoot},
		{location{plain: true}, guestBoot, guestBoot},
		{location{}, guestBoot, "shared/22222222-2222-4222-8222-222222222222/time:[4026531834]"},
		{location{own: true}, hostBoot, "shared/11111111-1111-4111-8111-111111111111/time:[4026531834]"}, // a machine that runs from a share
		{location{}, "container/1/2", "container/1/2"}, {location{}, "darwin/1", "darwin/1"}, {location{}, "process:1", "process:1"},
		{location{}, clock.UnknownDomain, clock.UnknownDomain},
	} {
		s := &Store{place: c.place}
		if got := s.Domain(c.is); got != c.now {
			t.Errorf("on %+v %q is %q, want %q", c.place, c.is, got, c.now)
		}
		if _, names := boot(s.Domain(c.is)); names && !c.place.plain {
			t.Errorf("on %+v %q names a boot", c.place, s.Domain(c.is))
		}
	}
}

func TestDomainsOfEarlierBootsAreGone(t *testing.T) {
	here := clock.Domain("linux/11111111-1111-4111-8111-111111111111/time:[4026531834]")
	ours := location{plain: true, own: true}
	s := &Store{config: Config{here: here}, place: ours}
	for d, gone := range map[clock.Domain]bool{
		here:                false,
		clock.UnknownDomain: false,
		"linux/11111111-1111-4111-8111-111111111111/time:[4026532000]": false, // a container with its own time
		"linux/11111111-1111-4111-8111-111111111111/":                  false, // a kernel without time namespaces
		"linux/22222222-2222-4222-8222-222222222222/time:[4026531834]": true,
		"linux/22222222-2222-4222-8222-222222222222/":                  true,
		"container/22222222-2222-4222-8222-222222222222/":              false, // an id that ends with the container
		"darwin/22222222-2222-4222-8222-222222222222":                  false,
		"darwin/2/3": false, "linux": false, "linux/": false, "linux//x": false, "linux/2": false, "another machine": false,
	} {
		if got := s.Gone(d); got != gone {
			t.Errorf("%s: %v", d, got)
		}
	}
	for _, other := range []*Store{{config: Config{here: here}}, {config: Config{here: here}, place: location{plain: true}},
		{config: Config{here: here}, place: location{own: true}}, {config: Config{here: clock.UnknownDomain}, place: ours},
		{config: Config{here: "darwin/1"}, place: ours}, {config: Config{here: "container/33333333-3333-4333-8333-333333333333/time:[4026531834]"}, place: ours}} {
		if other.Gone("linux/22222222-2222-4222-8222-222222222222/") {
			t.Errorf("%+v calls a domain gone", other)
		}
	}
}
