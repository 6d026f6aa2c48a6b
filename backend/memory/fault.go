package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Op is a method of a backend.
type Op string

// The methods that faults can be injected into.
const (
	Any      Op = ""
	Claim    Op = "claim"
	Await    Op = "await"
	Renew    Op = "renew"
	Release  Op = "release"
	Get      Op = "get"
	List     Op = "list"
	Watch    Op = "watch"
	History  Op = "history"
	Announce Op = "announce"
	Resume   Op = "resume"
	Revoke   Op = "revoke"
	Pin      Op = "pin" // and unpin
	Transfer Op = "transfer"
)

// changes says whether a lost answer to o leaves open what happened to the store.
func (o Op) changes() bool {
	return !slices.Contains([]Op{Await, Get, List, Watch, History}, o)
}

// Kind is what a fault does.
type Kind uint8

// What can go wrong.
const (
	_ Kind = iota
	// LoseRequest lets the request never reach the store. The caller cannot tell that from a lost answer.
	LoseRequest
	// LoseAnswer lets the store do what it is asked for, and the caller not hear of it.
	LoseAnswer
	// HoldRequest tells the caller that there was no answer, and lets the request reach the store when the
	// fault is removed, if it is one that changes something.
	HoldRequest
	// DelayRequest lets the request reach the store after [Fault.Delay].
	DelayRequest
	// DelayAnswer lets the answer reach the caller after [Fault.Delay].
	DelayAnswer
	// Stall lets the request go nowhere, and the caller wait until its context ends or the fault is removed.
	// A removal is not an answer: the request is lost.
	Stall
	// StallAnswer is a Stall after the store did what it was asked for.
	StallAnswer
	// Refuse answers with [Fault.Err] and changes nothing.
	Refuse
)

// Fault is something that goes wrong with calls.
type Fault struct {
	Kind  Kind
	Op    Op     // which calls; [Any] is all
	Name  string // only those about this name; empty is all. A renewal of many leases goes wrong for this one.
	Skip  int    // let so many calls pass first
	Times int    // then do it so often; 0 is until removed
	Delay time.Duration
	Err   error // for Refuse; nil is [backend.ErrUnavailable]
}

// fault is a Fault in force.
type fault struct {
	Fault
	removed chan struct{}
	held    []func()
}

// faults are those of one backend or one store. The zero value has none.
type faults struct {
	mu  sync.Mutex
	all []*fault
}

// inject puts f in force and returns what removes it.
func (f *faults) inject(what Fault) (remove func()) {
	if what.Kind == 0 || what.Kind > Refuse {
		panic(fmt.Sprintf("memory: a fault of no kind: %+v", what))
	}
	added := &fault{Fault: what, removed: make(chan struct{})}
	f.mu.Lock()
	f.all = append(f.all, added)
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.all = slices.DeleteFunc(f.all, func(other *fault) bool { return other == added })
		held := added.held
		f.mu.Unlock()
		close(added.removed)
		for _, do := range held {
			do()
		}
	})
}

// meet returns the first fault that a call runs into, or nil, and counts it.
func (f *faults) meet(op Op, name string) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.all {
		if !known.befalls(op, name) {
			continue
		}
		if known.Skip > 0 {
			known.Skip--
			continue
		}
		if known.Times > 0 {
			if known.Times--; known.Times == 0 {
				known.Times = -1 // used up; a stall or a held request waits for its removal all the same
			}
		}
		return known
	}
	return nil
}

// concerns says whether a fault that a renewal of this name runs into is about this name alone.
func (f *faults) concerns(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.all, func(known *fault) bool { return known.Name != "" && known.befalls(Renew, name) })
}

// befalls says whether a call runs into f, if f does not let it pass first.
func (f *fault) befalls(op Op, name string) bool {
	return (f.Op == Any || f.Op == op) && (f.Name == "" || f.Name == name) && f.Times >= 0
}

// hold keeps what is to be done when the fault is removed.
func (f *faults) hold(in *fault, do func()) {
	f.mu.Lock()
	select {
	case <-in.removed:
		f.mu.Unlock()
		do()
	default:
		in.held = append(in.held, do)
		f.mu.Unlock()
	}
}

var errNoAnswer = errors.New("no answer came")

// lost is the error of a call whose request or answer was lost.
func lost(op Op, why error) error {
	kind := backend.ErrUnavailable
	if op.changes() {
		kind = backend.ErrUnknownOutcome
	}
	return fmt.Errorf("memory: %s: %w: %w", op, kind, why)
}

// pass carries one call past the faults. do is what the store does; it has run when pass returns nil, and
// may have when it returns an error.
func (b *Backend) pass(ctx context.Context, op Op, name string, do func()) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	owner := &b.faults
	in := owner.meet(op, name)
	if in == nil {
		owner = &b.store.faults
		in = owner.meet(op, name)
	}
	if in == nil {
		do()
		return nil
	}
	switch in.Kind {
	case LoseRequest:
		return lost(op, errNoAnswer)
	case LoseAnswer:
		do()
		return lost(op, errNoAnswer)
	case HoldRequest:
		if op.changes() {
			owner.hold(in, do)
		}
		return lost(op, errNoAnswer)
	case DelayRequest:
		if err := b.sleep(ctx, in.Delay, nil); err != nil {
			return lost(op, err)
		}
		do()
		return nil
	case DelayAnswer:
		do()
		if err := b.sleep(ctx, in.Delay, nil); err != nil {
			return lost(op, err)
		}
		return nil
	case StallAnswer:
		do()
		fallthrough
	case Stall:
		if err := b.sleep(ctx, -1, in.removed); err != nil {
			return lost(op, err)
		}
		return lost(op, errNoAnswer)
	}
	err := in.Err
	if err == nil {
		err = backend.ErrUnavailable
	}
	return fmt.Errorf("memory: %s: %w", op, err)
}

// sleep returns nil after d, if that is not negative, or when the fault is removed, and an error if the
// context, the backend or the store's present life ends before.
func (b *Backend) sleep(ctx context.Context, d time.Duration, removed <-chan struct{}) error {
	var passed <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-passed:
		return nil
	case <-removed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closed:
		return errNoAnswer
	case <-b.store.life():
		return errRestarted
	}
}

var errRestarted = errors.New("the store was restarted")
