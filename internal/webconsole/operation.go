package webconsole

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// operation is a change of one name by an operator. Revoke and transfer apply to one tenure only. Pin looks at the tenure
// first; unpin does not, because the tenure may be over.
type operation struct {
	store  backend.Backend
	name   string
	token  backend.Token // of the tenure
	reason string
}

// revoke ends the tenure.
func (o operation) revoke(ctx context.Context, now bool) error {
	if o.reason == "" {
		return fmt.Errorf("%w: no reason is given", backend.ErrInvalid)
	}
	revoker, err := backend.Can[backend.Revoker](o.store)
	if err != nil {
		return err
	}
	return revoker.Revoke(ctx, o.name, o.token, o.reason, now)
}

// pin keeps the name with its holder.
func (o operation) pin(ctx context.Context) error {
	pinner, err := backend.Can[backend.Pinner](o.store)
	if err == nil {
		_, err = o.current(ctx)
	}
	if err != nil {
		return err
	}
	return pinner.Pin(ctx, o.name, o.reason)
}

func (o operation) unpin(ctx context.Context) error {
	pinner, err := backend.Can[backend.Pinner](o.store)
	if err != nil {
		return err
	}
	return pinner.Unpin(ctx, o.name)
}

// transfer makes the next waiter the holder, or the one with an id once the lease has ended.
func (o operation) transfer(ctx context.Context, to string) error {
	info, err := o.current(ctx)
	if err != nil {
		return err
	}
	if info.Pinned != "" {
		return fmt.Errorf("%w: %s", backend.ErrPinned, info.Pinned)
	}
	if to != "" {
		return o.transferTo(ctx, to)
	}
	if direct, ok := o.store.(heldTransferrer); ok {
		return direct.TransferHeld(ctx, o.name, o.token)
	}
	resumer, err := backend.Can[backend.Resumer](o.store)
	if err != nil {
		return err
	}
	transferrer, err := backend.Can[backend.Transferrer](o.store)
	if err != nil {
		return err
	}
	l, _, err := resumer.Resume(ctx, o.name, o.token, info.Holder)
	if err != nil {
		return err
	}
	return transferrer.Transfer(ctx, l)
}

// heldTransferrer is a store that transfers the name of another holder without resuming its lease.
type heldTransferrer interface {
	// TransferHeld makes the next waiting claim the holder, if the name has that token.
	TransferHeld(ctx context.Context, name string, t backend.Token) error
}

// transferTo makes a waiter the next, and revokes the lease.
func (o operation) transferTo(ctx context.Context, to string) error {
	preferrer, err := backend.Can[backend.Preferrer](o.store)
	if err != nil {
		return err
	}
	revoker, err := backend.Can[backend.Revoker](o.store)
	if err != nil {
		return err
	}
	if err := preferrer.Prefer(ctx, o.name, to); err != nil {
		return err
	}
	reason := "transferred to " + to
	if err := revoker.Revoke(ctx, o.name, o.token, reason, false); !errors.Is(err, backend.ErrLost) {
		return err
	}
	return nil // it has ended by itself
}

// current returns the state of the name if the tenure lasts, else [backend.ErrLost].
func (o operation) current(ctx context.Context) (backend.Info, error) {
	info, err := o.store.Get(ctx, o.name)
	switch {
	case err != nil:
		return info, err
	case !info.Held:
		return info, fmt.Errorf("%w: nobody holds %s", backend.ErrLost, o.name)
	case info.Token != o.token:
		return info, fmt.Errorf("%w: %s has a new holder: token %d was replaced by %d (%s)", backend.ErrLost, o.name, o.token, info.Token, info.Holder)
	}
	return info, nil
}
