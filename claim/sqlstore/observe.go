package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Observe implements [claim.Store]. An observation of an unknown domain is of no use to another process, so it
// is not stored.
func (s *Store) Observe(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	if d == clock.UnknownDomain {
		return at, nil
	}
	if err := errors.Join(textFits(name), textFits(string(d))); err != nil {
		return clock.Instant{}, fmt.Errorf("%s: %w", s.Scheme(), err)
	}
	args := []any{s.config.Namespace, name, string(d), op.String()}
	rows, err := s.read(ctx, "read what was observed of "+name, s.statements.observed, args...)
	if err == nil && len(rows) == 0 {
		rows, err = s.write(ctx, "keep what was observed of "+name, s.statements.observe, append(args, at.Raw, at.Boot)...)
	}
	if err != nil {
		return clock.Instant{}, err
	}
	kept, _, err := s.instant(rows)
	return kept, err
}

// endOfNames sorts after the names of all records, except those that begin with the last character of Unicode
// twice.
var endOfNames = strings.Repeat(string(utf8.MaxRune), 2)

// Sweep implements [claim.Store]. A name has no control characters. So the name followed by one is a text that
// sorts directly after it.
func (s *Store) Sweep(ctx context.Context, prefix, after, through string) error {
	for _, text := range []string{prefix, after, through} {
		if err := textFits(text); err != nil {
			return fmt.Errorf("%s: %w", s.Scheme(), err)
		}
	}
	from, to := prefix, following(prefix)
	if to == "" {
		to = endOfNames
	}
	if after != "" {
		from = max(from, after+"\x01")
	}
	if through != "" {
		to = min(to, through+"\x01")
	}
	_, err := s.read(ctx, "forget what was observed and replaced", s.statements.sweep, s.config.Namespace, from, to)
	return err
}

// Acknowledge implements [claim.Clocks].
func (s *Store) Acknowledge(ctx context.Context, d clock.Domain, at clock.Instant) error {
	if d == clock.UnknownDomain {
		return nil
	}
	if err := textFits(string(d)); err != nil {
		return fmt.Errorf("%s: %w", s.Scheme(), err)
	}
	_, err := s.write(ctx, "acknowledge the time", s.statements.acknowledge, s.config.Namespace, string(d), at.Raw, at.Boot)
	return err
}

// Acknowledged implements [claim.Clocks].
func (s *Store) Acknowledged(ctx context.Context, d clock.Domain) (clock.Instant, bool, error) {
	if d == clock.UnknownDomain || textFits(string(d)) != nil {
		return clock.Instant{}, false, nil
	}
	rows, err := s.read(ctx, "read the acknowledged time", s.statements.acknowledged, s.config.Namespace, string(d))
	if err != nil {
		return clock.Instant{}, false, err
	}
	return s.instant(rows)
}

// instant reads the first row as an instant, if there is one.
func (s *Store) instant(rows [][]any) (at clock.Instant, ok bool, err error) {
	if len(rows) == 0 {
		return at, false, nil
	}
	r := reader{values: rows[0]}
	at = clock.Instant{Raw: r.number("raw"), Boot: r.number("boot")}
	if r.wrong != nil {
		return at, false, fmt.Errorf("%s: %w: an instant: %v", s.Scheme(), backend.ErrCorrupt, r.wrong)
	}
	return at, true, nil
}
