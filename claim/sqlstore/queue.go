package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	turns "github.com/leasekeeper/leasekeeper/internal/queue"
)

// The queues of processes have a table of their own. It has one row, a ticket, for each process and name for
// which the process waits. No decision depends on it. A statement that only checks for tickets has a twin
// without that check, for databases where the table or a privilege is missing.

// queueing are the statements about tickets. They are empty if a dialect has none.
type queueing struct {
	table string // creates the table

	get         string // as get, and whether a process waits
	take        string // as take, if no process waits
	takeNow     string
	together    string // as together, if no process waits for the names of swaps with Alone
	join        string // adds a ticket, and returns its standing
	joinWith    string // the same among those of a priority, which begin at a given place; a conflict has no effect
	leave       string // deletes the tickets of one process up to a place
	leaveBefore string // and those of all others up to there, from a given place on
	prefer      string // moves the first ticket for a holder to the front
	pass        string // deletes the ticket at a place, and those of processes that have ended
	sweep       string // deletes tickets of processes that have ended, of all names
	empty       string // deletes all tickets of a process
	look        string // waits for what ask has set
	ask         string // sets what look waits for
	standings   string // the standings of the tickets of a process
	door        string // shows that the process runs, until its session ends

	lookFunction string // creates a function of the database that does what look does
	lookCall     string // calls it
}

// UseQueues sets whether the store's table of tickets can be used. It cannot before this is called, nor after a
// statement has found it missing.
func (s *Store) UseQueues(use bool) { s.queues.Store(use && s.statements.queue.join != "") }

// HasQueues reports whether the store uses a table of tickets.
func (s *Store) HasQueues() bool { return s.queues.Load() }

// UseLookFunction sets whether looks call the function of the database. They do not before this is called.
func (s *Store) UseLookFunction(use bool) { s.looks.Store(use && s.statements.queue.lookCall != "") }

// UsesLookFunction reports whether looks call the function of the database.
func (s *Store) UsesLookFunction() bool { return s.looks.Load() }

// LookFunction returns the name of the function for looks without its schema, the statement that creates it, and the
// SHA-256 of its source in hexadecimal digits. A function with another source is not that of this program.
func (s *Store) LookFunction() (name, create, source string) {
	sum := sha256.Sum256([]byte(s.tables.lookSource()))
	return s.tables.prefix + s.tables.lookName(), s.statements.queue.lookFunction, hex.EncodeToString(sum[:])
}

// TicketSchema returns the statement that creates the table of tickets alone, for databases whose tables are
// older; or "".
func (s *Store) TicketSchema() string { return s.statements.queue.table }

// withoutTickets returns the statement that does the same without looking at tickets; or "".
func (s *statements) withoutTickets(statement string) string {
	switch statement {
	case "":
	case s.queue.get:
		return s.get
	case s.queue.take:
		return s.take
	case s.queue.takeNow:
		return s.takeNow
	case s.queue.together:
		return s.together
	}
	return ""
}

// errQueue returns the error for a statement about tickets.
func (s *Store) errQueue(what, name string, f *Failure) error {
	kind := f.Kind
	switch {
	case f.Missing, f.Denied:
		s.queues.Store(false)
		kind = backend.ErrUnsupported
	case kind == backend.ErrUnknownOutcome: // no decision depends on it
		kind = backend.ErrUnavailable
	}
	return fmt.Errorf("%s: %s the queue of %s: %w: %w", s.Scheme(), what, name, kind, f.detail())
}

// ErrNoQueues returns the error of a store without queues.
func (s *Store) ErrNoQueues(why string) error {
	return fmt.Errorf("%s: %w: no queue of processes: %s", s.Scheme(), backend.ErrUnsupported, why)
}

// Statement is an SQL statement with its arguments.
type Statement struct {
	Text string
	Args []any
}

// Tickets are the tickets of one process, which a number identifies: its door.
type Tickets struct {
	store  *Store
	door   int64
	polled bool // no lock shows that the process runs
}

// Tickets returns the tickets of the process with that door.
func (s *Store) Tickets(door int64) *Tickets { return &Tickets{store: s, door: door} }

// PolledTickets returns the tickets of a process that has no session in which it could hold the lock of its door, and asks
// now and then. Other processes do not delete its tickets before they pass them over, which takes longer.
func (s *Store) PolledTickets(door int64) *Tickets {
	return &Tickets{store: s, door: door, polled: true}
}

func (t *Tickets) run(ctx context.Context, what, name, statement string, args ...any) ([][]any, error) {
	if !t.store.queues.Load() {
		return nil, t.store.ErrNoQueues("the table of tickets is missing")
	}
	if err := textFits(name); err != nil {
		return nil, fmt.Errorf("%s: %w", t.store.Scheme(), err)
	}
	rows, f := t.store.query(ctx, statement, args...)
	if f != nil {
		return nil, t.store.errQueue(what, name, f)
	}
	return rows, nil
}

// Join implements the method of [claim.Queues].
func (t *Tickets) Join(ctx context.Context, name string) (claim.Standing, error) {
	return t.JoinWith(ctx, name, claim.Ticket{})
}

// A ticket's kind is "exclusive" or "polled 1500", where the number says for how many milliseconds the process may leave a
// free name at its turn. Then may come " for " and the holder. Programs that do not know a kind take it for exclusive.
const (
	exclusiveKind = "exclusive"
	polledKind    = "polled "
	kindHolder    = " for "
)

// kindOf returns the kind of a ticket.
func (t *Tickets) kindOf(ticket claim.Ticket) string {
	kind := exclusiveKind
	if t.polled {
		kind = polledKind + strconv.FormatInt(ticket.Patience().Milliseconds(), 10)
	}
	if ticket.Holder != "" {
		kind += kindHolder + ticket.Holder
	}
	return kind
}

// patienceOf returns for how long a process may leave a free name at its turn, by the kind of its ticket.
func patienceOf(kind string) time.Duration {
	text, polled := strings.CutPrefix(kind, polledKind)
	text, _, _ = strings.Cut(text, kindHolder)
	n, err := strconv.ParseInt(text, 10, 64)
	if !polled || err != nil {
		return 0
	}
	return turns.ReadPatience(n)
}

// JoinWith implements the method of [claim.PriorityQueues].
func (t *Tickets) JoinWith(ctx context.Context, name string, ticket claim.Ticket) (claim.Standing, error) {
	if ticket.Priority == 0 {
		return t.joined(t.run(ctx, "join", name, t.store.statements.queue.join, t.store.config.Namespace, name, t.door, t.kindOf(ticket)))
	}
	return t.joined(t.run(ctx, "join", name, t.store.statements.queue.joinWith, t.store.config.Namespace, name, t.door, t.kindOf(ticket), claim.FirstPlace(ticket.Priority)))
}

// joined reads the standing of a new ticket.
func (t *Tickets) joined(rows [][]any, err error) (claim.Standing, error) {
	if err != nil {
		return claim.Standing{}, err
	}
	if len(rows) == 0 {
		return claim.Standing{}, t.store.errNamespaceGone()
	}
	return t.store.standing(rows[0])
}

// Leave implements the method of [claim.Queues].
func (t *Tickets) Leave(ctx context.Context, name string, place int64, before bool) error {
	var err error
	if before {
		_, err = t.run(ctx, "leave", name, t.store.statements.queue.leaveBefore, t.store.config.Namespace, name, place, claim.FirstToLeave(place), t.door)
	} else {
		_, err = t.run(ctx, "leave", name, t.store.statements.queue.leave, t.store.config.Namespace, name, place, t.door)
	}
	return err
}

// Pass implements the method of [claim.Queues].
func (t *Tickets) Pass(ctx context.Context, name string, head int64) error {
	_, err := t.run(ctx, "advance", name, t.store.statements.queue.pass, t.store.config.Namespace, name, head)
	return err
}

// preferTries is how often a ticket is moved while others are moved to the same place.
const preferTries = 8

// Prefer implements [claim.Preferrer].
func (s *Store) Prefer(ctx context.Context, name, holder string) (found bool, err error) {
	if holder == "" {
		return false, nil
	}
	if err := textFits(holder); err != nil {
		return false, fmt.Errorf("%s: %w", s.Scheme(), err)
	}
	t := s.Tickets(0) // no ticket of its own
	for i := range preferTries {
		var rows [][]any
		rows, err = t.run(ctx, "advance", name, s.statements.queue.prefer, s.config.Namespace, name, holder, int64(claim.FrontPlace))
		switch {
		case len(rows) > 0:
			return true, nil
		case err == nil && i > 0, ctx.Err() != nil, errors.Is(err, backend.ErrUnsupported):
			return false, err
		} // otherwise another client may have moved a ticket at the same time
	}
	return false, err
}

// Empty deletes all tickets of the process.
func (t *Tickets) Empty(ctx context.Context) error {
	_, err := t.run(ctx, "leave", "every name", t.store.statements.queue.empty, t.store.config.Namespace, t.door)
	return err
}

// Sweep deletes tickets of processes that have ended.
func (t *Tickets) Sweep(ctx context.Context) error {
	_, err := t.run(ctx, "sweep", "every name", t.store.statements.queue.sweep, t.store.config.Namespace)
	return err
}

// Open returns the statement that shows that the process runs, for as long as its session lasts.
func (t *Tickets) Open() Statement {
	return Statement{t.store.statements.queue.door, []any{t.door}}
}

// Look returns the statements that together are one look. They run in this order in one session, as one
// transaction. The rows of the last are for Standings.
func (t *Tickets) Look(l claim.Look) []Statement {
	question, err := json.Marshal(map[string]any{
		"ns": t.store.config.Namespace, "door": t.door, "known": append([]int64{}, l.Known...),
		"for": l.For.Seconds(), "calm": l.Calm.Seconds(),
	})
	if err != nil {
		panic("sqlstore: numbers and a text are not JSON: " + err.Error())
	}
	look := t.store.statements.queue.look
	if t.store.looks.Load() {
		look = t.store.statements.queue.lookCall
	}
	return []Statement{
		{t.store.statements.queue.ask, []any{string(question)}},
		{look, nil},
		{t.store.statements.queue.standings, []any{t.store.config.Namespace, t.door}},
	}
}

// Poll returns the standings of all tickets of the process, by one statement over any connection.
func (t *Tickets) Poll(ctx context.Context) ([]claim.Standing, error) {
	rows, err := t.run(ctx, "read", "every name", t.store.statements.queue.standings, t.store.config.Namespace, t.door)
	if err != nil {
		return nil, err
	}
	return t.Standings(rows)
}

// Standings reads the rows of a look.
func (t *Tickets) Standings(rows [][]any) (all []claim.Standing, err error) {
	for _, row := range rows {
		s, err := t.store.standing(row)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// standing reads a row of queue.join or queue.standings.
func (s *Store) standing(values []any) (is claim.Standing, err error) {
	const own = 6
	r := reader{values: values[:min(own, len(values))]}
	is.Name, is.Place, is.Head, is.Ahead = r.text("name"), r.number("place"), r.number("place"), int(r.number("place"))
	is.For = time.Duration(r.number("free"))
	is.Preferred = claim.IsPreferred(is.Place)
	is.Patience = patienceOf(r.text("kind"))
	if r.wrong != nil {
		return is, fmt.Errorf("%s: %w: a ticket: %v", s.Scheme(), backend.ErrCorrupt, r.wrong)
	}
	if is.Found, err = s.found(values[own:], &s.memory); err != nil {
		return is, err
	}
	is.Err, is.Found.Err = is.Found.Err, nil
	is.Found.Record.Name = is.Name // also if the name has no record
	return is, nil
}
