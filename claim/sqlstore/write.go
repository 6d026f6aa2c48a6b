package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Swap implements [claim.Store].
func (s *Store) Swap(ctx context.Context, w claim.Swap) (bool, error) {
	statement, args, past, err := s.swapStatement(w)
	if err != nil {
		return false, err
	}
	what := "write " + w.Record.Name
	var rows [][]any
	if now := s.statements.withoutLockWait(statement); w.Owner && now != "" {
		rows, err = s.writeOwner(ctx, what, w.Record.Name, statement, now, args)
	} else {
		rows, err = s.write(ctx, what, statement, args...)
	}
	if err != nil {
		if errors.Is(err, backend.ErrUnknownOutcome) {
			s.notifyOwner(w, nil)
		}
		return false, err
	}
	if len(rows) > 0 {
		s.notifyOwner(w, rows[0])
		if extends(w) || keeps(w) {
			s.memory.movedTo(w.Record.Name, w.Old, w.Record.Op)
		} else {
			s.memory.remember(w.Record.Name, past)
		}
		return true, nil
	}
	if w.Above { // the floor may be the reason; the caller of a write with Above reads the record then
		return false, nil
	}
	return false, s.whyNot(ctx, verdict{})
}

// Bounds implements [claim.Bounded].
func (s *Store) Bounds() bool { return true }

// notifyOwner notifies others that a swap has changed the owner of a name, or may have. It does nothing if the
// returned row says that no process listens.
func (s *Store) notifyOwner(w claim.Swap, row []any) {
	if len(row) > 0 && row[0] == any(false) {
		return
	}
	if s.notifier != nil && w.Owner {
		s.notifier.OwnerChanged(w.Record.Name, !w.Record.Held())
	}
}

// swapStatement returns the statement of a conditional write, its arguments, and the history of the row after
// it, if that changes.
func (s *Store) swapStatement(w claim.Swap) (statement string, args []any, past history, err error) {
	if err := s.checkSwap(w); err != nil {
		return "", nil, past, err
	}
	if extends(w) {
		if args, err = extension([]any{s.config.Namespace, w.Record.Name}, &w.Record); err != nil {
			return "", nil, past, fmt.Errorf("%s: %w", s.Scheme(), err)
		}
		args = append(args, s.config.mode(), w.Old.String())
		return s.statements.extend, append(args, s.dialect.writeSettings(s.config)...), past, nil
	}
	args = append(make([]any, 0, placesAfter(columns).settings), s.config.Namespace, w.Record.Name)
	if !s.tables.marks && !w.Record.Mark.IsZero() {
		return "", nil, past, s.CanMark()
	}
	if args, err = row(args, &w.Record, keeps(w), s.tables.marks); err != nil {
		return "", nil, past, fmt.Errorf("%s: %w", s.Scheme(), err)
	}
	statement = s.statements.take
	if w.Alone && s.queues.Load() {
		statement = s.statements.queue.take
	}
	if !keeps(w) {
		var same bool
		past, same = s.memory.historyOf(&w.Record, w.Old, w.Owner && w.Adds)
		unknown := w.Record.Past
		if same {
			unknown = unknown[:1]
		}
		if err := pastFits(unknown); err != nil {
			return "", nil, past, fmt.Errorf("%s: %w", s.Scheme(), err)
		}
		args = append(args, past.recent)
		switch {
		case same:
			statement = s.statements.end
		case w.Old != (claim.Op{}):
			statement, args = s.statements.update, append(args, past.past)
		default:
			statement, args = s.statements.create, append(args, past.past)
		}
	}
	args = append(args, s.config.mode())
	if w.Old != (claim.Op{}) {
		args = append(args, w.Old.String(), w.Ended, w.Above)
	}
	return statement, append(args, s.dialect.writeSettings(s.config)...), past, nil
}

// checkSwap returns an error if no store can do a swap.
func (s *Store) checkSwap(w claim.Swap) error {
	switch {
	case w.Ended && !s.config.StoreClock:
		return fmt.Errorf("%s: %w: only in store-clock mode does the database judge what has ended", s.Scheme(), backend.ErrInvalid)
	case w.Record.Name == "" || !w.Record.Exists() || w.Record.Op == w.Old:
		return fmt.Errorf("%s: %w: a write of %q needs a name and an op of its own", s.Scheme(), backend.ErrInvalid, w.Record.Name)
	}
	return nil
}

// keeps reports whether a swap can leave pins and past as they are.
func keeps(w claim.Swap) bool { return w.Keeps && w.Old != (claim.Op{}) }

// extends reports whether a swap can write only what an extension changes.
func extends(w claim.Swap) bool { return w.Extends && !w.Owner && !w.Ended && w.Old != (claim.Op{}) }

// whyNot returns the reason why nothing was written, if it is another than the op.
func (s *Store) whyNot(ctx context.Context, v verdict) error {
	if !v.known {
		space, err := s.namespace(ctx)
		if errors.Is(err, errNoNamespace) {
			return s.errNamespaceGone()
		}
		if err != nil {
			return err // nothing was written
		}
		v.mode, v.commit = space.mode, space.commit
	}
	if err := s.checkMode(v.mode); err != nil {
		return err
	}
	if v.commit == "off" && !s.config.AcceptLoss {
		return fmt.Errorf("%s: %w: synchronous_commit is off on this connection, so that a crash may undo what was acknowledged: set it to on for the user, or accept the loss", s.Scheme(), backend.ErrInvalid)
	}
	return nil
}

// SwapAll implements [claim.Batcher]. Swaps that only extend are one statement, or a few if others wait for
// each. Every other swap is a statement of its own, since one that waits for a transaction must not delay the
// rest.
func (s *Store) SwapAll(ctx context.Context, swaps []claim.Swap) ([]bool, error) {
	done := make([]bool, len(swaps))
	together, places := make([][]any, 0, len(swaps)), make(map[string]int, len(swaps))
	var apart []int
	for i, w := range swaps {
		if _, twice := places[w.Record.Name]; twice || !extends(w) {
			if _, _, _, err := s.swapStatement(w); err != nil {
				return nil, err
			}
			apart = append(apart, i)
			continue
		}
		if err := s.checkSwap(w); err != nil {
			return nil, err
		}
		values, err := extension(append(make([]any, 0, len(extended)+2), w.Record.Name), &w.Record)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Scheme(), err)
		}
		places[w.Record.Name] = i
		together = append(together, append(values, w.Old.String()))
	}
	statements := 0
	for some := range slices.Chunk(together, s.dialect.mostTogether()) {
		if err := s.swapTogether(ctx, some, places, done); err != nil {
			return nil, partly(err, statements, len(swaps))
		}
		statements++
	}
	for _, i := range apart {
		ok, err := s.Swap(ctx, swaps[i])
		if err != nil {
			return nil, partly(err, statements, len(swaps))
		}
		done[i] = ok
		statements++
	}
	return done, nil
}

// partly returns the error of many writes if that of one statement is err and earlier statements were done.
func partly(err error, before, writes int) error {
	if before == 0 || errors.Is(err, backend.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w of %d writes, some of them done: %w", backend.ErrUnknownOutcome, writes, err)
}

// swapTogether writes many records with one statement, and notes which were written.
func (s *Store) swapTogether(ctx context.Context, swaps [][]any, places map[string]int, done []bool) error {
	what := fmt.Sprintf("write %d records", len(swaps))
	statement, args := s.dialect.batch(s.config, &s.statements, swaps)
	rows, err := s.write(ctx, what, statement, args...)
	if err != nil {
		return err
	}
	names, v := s.dialect.batchVerdict(rows, swaps)
	for _, name := range names {
		done[places[name]] = true
	}
	if len(names) == 0 {
		return s.whyNot(ctx, v)
	}
	return nil
}

// RaiseFloor implements [claim.Store].
func (s *Store) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	if t > math.MaxInt64 {
		return 0, fmt.Errorf("%s: %w: token %d is above %d, the largest number in a database", s.Scheme(), backend.ErrInvalid, t, int64(math.MaxInt64))
	}
	rows, err := s.write(ctx, "raise the floor", s.statements.raise, s.config.Namespace, int64(t))
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, s.errNamespaceGone()
	}
	r := reader{values: rows[0]}
	floor := r.number("floor")
	if r.wrong != nil || floor < 0 {
		return 0, fmt.Errorf("%s: %w: the row of namespace %s: %v", s.Scheme(), backend.ErrCorrupt, s.config.Namespace, r.wrong)
	}
	return backend.Token(floor), nil
}

// Remove implements [claim.Store]. The observations go first: without them others only wait longer.
func (s *Store) Remove(ctx context.Context, name string, old claim.Op) (bool, error) {
	if err := textFits(name); err != nil {
		return false, fmt.Errorf("%s: %w", s.Scheme(), err)
	}
	if err := s.checkMarkless(ctx); err != nil {
		return false, err
	}
	args := []any{s.config.Namespace, name, old.String()}
	if _, err := s.read(ctx, "forget what was observed of "+name, s.statements.forget, args...); err != nil {
		return false, err
	}
	rows, err := s.write(ctx, "remove "+name, s.statements.remove, args...)
	return len(rows) > 0, err
}
