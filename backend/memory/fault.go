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

// The methods for which faults can be injected.
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
	Mark     Op = "mark"
	SetMark  Op = "set mark" // raise and replace
	Finish   Op = "finish"
	Prefer   Op = "prefer"
)

// changes reports whether a lost answer to o leaves the effect on the store unknown.
func (o Op) changes() bool {
	return !slices.Contains([]Op{Await, Get, List, Watch, History, Mark}, o)
}

// Kind is what a fault does.
type Kind uint8

// The kinds of faults.
const (
	_ Kind = iota
	// LoseRequest loses the request. The caller cannot tell that from a lost answer.
	LoseRequest
	// LoseAnswer loses the answer after the store has executed the request.
	LoseAnswer
	// HoldRequest gives the caller an error as if there were no answer. If the request changes something, it
	// reaches the store when the fault is removed.
	HoldRequest
	// DelayRequest makes the request reach the store after [Fault.Delay].
	DelayRequest
	// DelayAnswer makes the answer reach the caller after [Fault.Delay].
	DelayAnswer
	// Stall loses the request, and makes the caller wait until its context ends or the fault is removed. The
	// removal does not produce an answer.
	Stall
	// StallAnswer is a Stall after the store has executed the request.
	StallAnswer
	// Refuse answers with [Fault.Err] and changes nothing.
	Refuse
)

// Fault is something that goes wrong with calls.
type Fault struct {
	Kind  Kind
	Op    Op     // the calls that it hits; [Any] means all
	Name  string // only calls about this name; empty means all; of a renewal of many leases it hits only this one
	Skip  int    // how many calls pass first
	Times int    // how many calls it hits then; 0 means until it is removed
	Delay time.Duration
	Err   error // for Refuse; nil is [backend.ErrUnavailable]
}

// activeFault is a Fault in force.
type activeFault struct {
	Fault
	removed chan struct{}
	held    []func()
}

// faults are those of one backend or one store. The zero value has none.
type faults struct {
	mu  sync.Mutex
	all []*activeFault
}

// inject puts a fault in force and returns a function that removes it.
func (f *faults) inject(what Fault) (remove func()) {
	if what.Kind == 0 || what.Kind > Refuse {
		panic(fmt.Sprintf("memory: a fault of no kind: %+v", what))
	}
	added := &activeFault{Fault: what, removed: make(chan struct{})}
	f.mu.Lock()
	f.all = append(f.all, added)
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.all = slices.DeleteFunc(f.all, func(other *activeFault) bool { return other == added })
		held := added.held
		f.mu.Unlock()
		close(added.removed)
		for _, do := range held {
			do()
		}
	})
}

// meet returns the first fault that hits a call, or nil, and counts it.
func (f *faults) meet(op Op, name string) *activeFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.all {
		if !known.matches(op, name) {
			continue
		}
		if known.Skip > 0 {
			known.Skip--
			continue
		}
		if known.Times > 0 {
			if known.Times--; known.Times == 0 {
				known.Times = -1 // used up; a stall or a held request still waits for its removal
			}
		}
		return known
	}
	return nil
}

// isAboutName reports whether the fault that hits a renewal of this name is about this name alone.
func (f *faults) isAboutName(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.all, func(known *activeFault) bool { return known.Name != "" && known.matches(Renew, name) })
}

// matches reports whether f can hit a call. It ignores Skip.
func (f *activeFault) matches(op Op, name string) bool {
	return (f.Op == Any || f.Op == op) && (f.Name == "" || f.Name == name) && f.Times >= 0
}

// hold keeps a function to run when the fault is removed.
func (f *faults) hold(in *activeFault, do func()) {
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

// lost returns the error of a call whose request or answer was lost.
func lost(op Op, why error) error {
	kind := backend.ErrUnavailable
	if op.changes() {
		kind = backend.ErrUnknownOutcome
	}
	return fmt.Errorf("memory: %s: %w: %w", op, kind, why)
}

// pastFaults carries one call past the faults. do is what the store does. It has run when pastFaults returns
// nil, and may have run when it returns an error.
func (b *Backend) pastFaults(ctx context.Context, op Op, name string, do func()) error {
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

// sleep returns nil after d, if that is not negative, or when the fault is removed. It returns an error if the
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
