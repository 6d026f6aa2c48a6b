package leasekeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// This file has what operators do to names of any holder.

// able returns the keeper's backend as T, for a call that needs that ability and a name. It returns an
// [*UnsupportedError] if the store cannot do this.
func able[T any](k *Keeper, name string) (T, error) {
	var none T
	if err := backend.CheckName(name); err != nil {
		return none, err
	}
	if k.calling.Err() != nil {
		return none, errKeeperClosed
	}
	return backend.Can[T](k.backend)
}

// History returns the last tenures of a name, newest first: at most limit, and no more than the store keeps.
func (k *Keeper) History(ctx context.Context, name string, limit int) ([]Tenure, error) {
	historian, err := able[backend.Historian](k, name)
	if err != nil {
		return nil, err
	}
	return historian.History(ctx, name, limit)
}

// Revoke ends the tenure of another holder. The store refuses all further renewals of the holder, and frees the name when
// the promise to the holder has passed. t is the token of the tenure; 0 means the current one. The reason is for people,
// in the history. [ErrLost] means that the tenure has ended already.
func (k *Keeper) Revoke(ctx context.Context, name string, t Token, reason string) error {
	return k.endTenure(ctx, name, t, reason, false)
}

// RevokeNow is Revoke without the wait for the promise: it frees the name at once, although its holder may still act under
// it. Use it only if the holder is dead, or if every write is fenced by tokens.
func (k *Keeper) RevokeNow(ctx context.Context, name string, t Token, reason string) error {
	return k.endTenure(ctx, name, t, reason, true)
}

func (k *Keeper) endTenure(ctx context.Context, name string, t Token, reason string, now bool) error {
	revoker, err := able[backend.Revoker](k, name)
	if err != nil {
		return err
	}
	return revoker.Revoke(ctx, name, t, reason, now)
}

// Transfer gives a name to the waiter whose holder has the id, whatever its priority: to the first, if several have that id.
// [ErrInvalid] means that it does not wait, and [ErrPinned] that the name is pinned.
//
// If this keeper holds the name, Transfer ends the context of the lease, with that as the cause. [Keeper.Run] and
// [Keeper.Campaign] then wait for their function and release the name, as does a caller of [Keeper.Acquire];
// [HoldAtLeast] does not apply. Transfer waits for that until ctx ends, but not if ctx descends from the context of the
// lease: it would wait for its own caller. If the function does not return, the lease runs out, and Transfer returns the
// [ErrLost].
//
// If another holder has the name, Transfer is a [Keeper.Revoke]: it returns at once, and the waiter gets the name when the
// promise to the holder has passed. A waiter that dies in between is passed over.
//
// In a database the waiter is in the store's queue as soon as it is one of its process's first, so shortly after its call. A
// store that cannot order waiters returns [ErrUnsupported], as for [WithPriority].
func (k *Keeper) Transfer(ctx context.Context, name, to string) error {
	preferrer, err := able[backend.Preferrer](k, name)
	if err != nil {
		return err
	}
	l, ended := k.holding(name) // before Prefer, after which the waiter may become the holder at any time
	info, err := k.backend.Get(ctx, name)
	if err != nil {
		return err
	}
	if info.Pinned != "" {
		return fmt.Errorf("leasekeeper: transfer of %s: %w: %s", name, ErrPinned, backend.Printable(info.Pinned))
	}
	if err := preferrer.Prefer(ctx, name, to); err != nil {
		return err
	}
	switch {
	case l != nil:
		return k.transferOwn(ctx, l, ended, to)
	case !info.Held:
		return nil
	}
	if err := k.endTenure(ctx, name, info.Token, "transferred to "+to, false); !errors.Is(err, ErrLost) {
		return err
	}
	return nil // it has ended by itself
}

// transferOwn ends a tenure of this keeper for a transfer, and waits for its release. ended is closed when the lease ends.
func (k *Keeper) transferOwn(ctx context.Context, l *Lease, ended <-chan struct{}, to string) error {
	k.mu.Lock()
	l.dropHold()
	k.mu.Unlock()
	l.retire("it is transferred to " + to)
	if l.isAround(ctx) {
		return nil
	}
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("leasekeeper: transfer of %s: %w: its function, or its holder, has not ended: %w", l.name, ErrUnknownOutcome, ctx.Err())
	}
	if loss := l.loss(); loss != nil {
		return loss
	}
	return l.awaitRelease(ctx)
}

// isAround reports whether ctx descends from the context of the lease.
func (l *Lease) isAround(ctx context.Context) bool {
	for {
		inner, ok := ctx.Value(innermostLease{l.k}).(*Lease)
		if !ok || inner == l {
			return ok
		}
		l.k.mu.Lock()
		ctx = inner.parent
		l.k.mu.Unlock()
	}
}

// holding returns this keeper's lease on a name, and a channel that is closed when it ends; nil if there is none.
func (k *Keeper) holding(name string) (*Lease, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.held[name]
	if l == nil {
		return nil, nil
	}
	if l.ended == nil {
		l.ended = make(chan struct{})
	}
	return l, l.ended
}

// Pin keeps a name with its holder: the lease does not end, and it cannot be revoked or transferred, until [Keeper.Unpin]
// or until the holder releases it. A store may keep the pin for the next holder. [ErrInvalid] means that the name has no
// holder.
func (k *Keeper) Pin(ctx context.Context, name, reason string) error {
	pinner, err := able[backend.Pinner](k, name)
	if err != nil {
		return err
	}
	return pinner.Pin(ctx, name, reason)
}

// Unpin ends a pin. It is no error if the name is not pinned.
func (k *Keeper) Unpin(ctx context.Context, name string) error {
	pinner, err := able[backend.Pinner](k, name)
	if err != nil {
		return err
	}
	return pinner.Unpin(ctx, name)
}
