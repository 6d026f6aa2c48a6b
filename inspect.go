package leasekeeper

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// pageSize is how many names List requests at a time.
const pageSize = 256

// Get returns the state of a name. A name that was never held is reported as not held, without an error.
func (k *Keeper) Get(ctx context.Context, name string) (Info, error) {
	if err := backend.CheckName(name); err != nil {
		return Info{}, err
	}
	if err := k.calling.Err(); err != nil {
		return Info{}, errKeeperClosed
	}
	return k.backend.Get(ctx, name)
}

// List yields the names that begin with prefix, in order. It requests them from the store page by page while the loop
// goes on, so a name that changes meanwhile may appear as it was or as it is.
//
// An error together with a name in its Info concerns that name alone: its record cannot be read, and the loop goes on
// with the others. Any other error ends the loop.
func (k *Keeper) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Info{}, err)
			return
		}
		for after := ""; ; {
			if k.calling.Err() != nil {
				yield(Info{}, errKeeperClosed)
				return
			}
			page, err := k.backend.List(ctx, prefix, after, pageSize)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, i := range page {
				if i.Name <= after {
					yield(Info{}, fmt.Errorf("leasekeeper: %w: the store lists %q after %q", ErrCorrupt, i.Name, after))
					return
				}
				after = i.Name
				if !yield(i, i.Err) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

// Watch yields the state of the names that begin with prefix (events of the kind [Resync]), and then each change. Events
// of one name come in order. A slow loop receives a Resync with the current state in place of the events it missed.
//
// An error means that the store cannot go on. If the error is temporary, a loop that continues after it goes on watching,
// beginning with Resync events. Any other error is the last element.
func (k *Keeper) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		watcher, err := backend.Can[backend.Watcher](k.backend)
		if err == nil {
			err = checkPrefix(prefix)
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		ctx, done := k.bound(ctx)
		defer done()
		for fails := 0; ; fails++ {
			broken := false
			once, cancel := context.WithCancel(ctx)
			err := watcher.Watch(once, prefix, func(e backend.Event) {
				fails = 0
				if !broken && !yield(e, nil) {
					broken = true
					cancel()
				}
			})
			cancel()
			switch {
			case broken:
				return
			case ctx.Err() != nil:
				yield(Event{}, endedBy(ctx))
				return
			case err == nil:
				err = fmt.Errorf("%w: the store ended the watch", ErrUnavailable)
			}
			if !yield(Event{}, err) || !transient(err) {
				return
			}
			if !pause(ctx, pauseAfter(fails, DefaultTTL)) {
				yield(Event{}, endedBy(ctx))
				return
			}
		}
	}
}

func checkPrefix(prefix string) error {
	if len(prefix) > backend.MaxName || !utf8.ValidString(prefix) {
		return fmt.Errorf("%w: a prefix of names is UTF-8 and has at most %d bytes", ErrInvalid, backend.MaxName)
	}
	return nil
}

// Resume continues the tenure of the name under token t, which an earlier process or another keeper began and then left.
// That process must no longer act under the lease: it would find out only at the lease's end. The lease keeps the TTL
// that it was granted. [ErrLost] means that the name has another holder or none, or that this keeper lost the lease at its
// deadline and is releasing it.
func (k *Keeper) Resume(ctx context.Context, name string, t Token, o ...Option) (*Lease, error) {
	resumer, options, err := k.resumption(name, t, o)
	if err != nil {
		return nil, err
	}
	if err := k.enter(); err != nil {
		return nil, err
	}
	defer k.leave()
	if err := k.confirmHold(ctx, name, options); err != nil {
		return nil, err
	}
	if err := k.resumable(name, t); err != nil {
		return nil, err
	}
	p := k.newPlace(ctx, name, options, false)
	l := p.l
	if err := k.start(&p); err != nil {
		return nil, err
	}
	bounded, done := k.bound(ctx)
	defer done()
	raw, grant, err := resumer.Resume(bounded, name, t, k.identity(options.text))
	if err != nil {
		if bounded.Err() != nil && !errors.Is(err, ErrUnknownOutcome) {
			err = endedBy(bounded)
		}
		return nil, k.refused(bounded, l, err)
	}
	k.mu.Lock()
	l.raw, l.token = raw, grant.Token
	l.ttl.Store(int64(grant.TTL))
	closing := k.closing
	if closing {
		// The lease stays as it was: another process may resume it.
		k.step(keepalive.Refused{Lease: l.handle})
		k.forget(l)
	} else {
		k.step(keepalive.Granted{Lease: l.handle, TTL: grant.TTL, Until: grant.Until})
	}
	holds := l.isHeld
	k.mu.Unlock()
	switch {
	case closing:
		return nil, errKeeperClosed
	case !holds:
		return nil, fmt.Errorf("%w: the store takes longer to answer than a TTL of %v allows", ErrUnavailable, l.TTL())
	}
	k.limit(l, options)
	return l, nil
}

// resumption checks the arguments of Resume, and whether the store can resume leases.
func (k *Keeper) resumption(name string, t Token, o []Option) (backend.Resumer, leaseOptions, error) {
	options, err := k.forOne(o)
	if err == nil {
		err = backend.CheckName(name)
	}
	if err == nil && t == 0 {
		err = fmt.Errorf("%w: 0 is no token", ErrInvalid)
	}
	if err != nil {
		return nil, options, err
	}
	resumer, err := backend.Can[backend.Resumer](k.backend)
	return resumer, options, err
}
