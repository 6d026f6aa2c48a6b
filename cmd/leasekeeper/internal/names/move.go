package names

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// moveFlags are the flags of `move`.
type moveFlags struct {
	from, to string
	dryRun   bool
	timeout  time.Duration
	output   string
}

func newMove() *cobra.Command {
	var flags moveFlags
	cmd := &cobra.Command{
		Use:   "move --from URL --to URL [PREFIX]",
		Short: "Move names to another store, with tokens that keep growing",
		Long: `Move the names that begin with PREFIX, or all names, from one store to another. Their tokens keep growing: the next
token of a name in the new store is above every token that it had in the old store.

Names that are held, pinned or unreadable stay in the old store. The command lists them, and its exit code is then 1.
It can be interrupted and repeated at any time.

First stop the programs that use these names in the old store. A program that keeps using the old store does not see
holders in the new one.

If the new store is a database, the command raises its floor above all tokens of the old store, writes a record of
each name, and only then removes the name from the old store. A lease server and etcd use their revisions as tokens:
names can move there only if the revision is above all tokens that the old store has issued.

The marks of recurring work move with their names. A lease server and etcd keep their own copies of them.`,
		Example: `  leasekeeper move --from sqlite:/var/lib/leasekeeper/leases.db --to postgres://db.example.org/app --dry-run
  leasekeeper move --from leasekeeper://10.0.0.1/ --to postgres://db.example.org/app jobs/`,
		Args:                  command.Between(0, 1, "one prefix"),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.run(cmd, prefixOf(args)) },
	}
	cmd.Flags().StringVar(&flags.from, "from", "", "`URL` of the store to move names from")
	cmd.Flags().StringVar(&flags.to, "to", "", "`URL` of the store to move names to")
	cmd.Flags().BoolVar(&flags.dryRun, "dry-run", false, "print what would be moved, and change nothing")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", settings.DefaultTimeout, "how long to wait for each answer")
	cmd.Flags().StringVarP(&flags.output, "output", "o", console.Table, "`table` or json")
	return cmd
}

func (f *moveFlags) complete() error {
	switch {
	case f.from == "" || f.to == "":
		return command.WrongUsage("--from or --to is missing: write --from URL --to URL; a URL looks like %s", settings.ExampleStore)
	case f.from == f.to:
		return command.WrongUsage("--from and --to are the same store: there is nothing to move")
	case f.timeout <= 0:
		return command.WrongUsage("--timeout %v is not positive: write how long to wait, such as 5s", f.timeout)
	}
	for _, side := range []*string{&f.from, &f.to} {
		err := settings.CheckStore(*side)
		if err == nil {
			*side, err = settings.WithUser(*side)
		}
		if err != nil {
			return err
		}
	}
	return command.CheckOutput(f.output)
}

// moved is the JSON output of `move`.
type moved struct {
	DryRun bool      `json:"dry_run"`
	Moved  *int      `json:"moved,omitempty"` // missing if the old store keeps no records of free names
	Above  uint64    `json:"above"`           // all later tokens are above this one
	Stay   []staying `json:"stay"`
	// Marks is how many marks of recurring work were copied; missing if the old store is a database, whose marks move with
	// their names.
	Marks *int `json:"marks,omitempty"`
}

// staying is a name that was not moved, and why.
type staying struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

func (f *moveFlags) run(cmd *cobra.Command, prefix string) error {
	if err := f.complete(); err != nil {
		return err
	}
	const doing = "move names"
	opening, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	from, err := backend.Open(opening, f.from)
	if err != nil {
		return store.ExplainWith("open the store of --from", err, "check that it is running, or choose another store with --from")
	}
	defer from.Close(context.WithoutCancel(opening)) // its error does not matter: no change is pending
	to, err := backend.Open(opening, f.to)
	if err != nil {
		return store.ExplainWith("open the store of --to", err, "check that it is running, or choose another store with --to")
	}
	defer to.Close(context.WithoutCancel(opening))
	m := &mover{dryRun: f.dryRun, prefix: prefix, result: moved{DryRun: f.dryRun, Stay: []staying{}}}
	if m.from, err = sideOf(from); err == nil {
		m.to, err = sideOf(to)
	}
	if err != nil {
		return store.ExplainWith(doing, err, "check that both stores are running, and repeat the command")
	}
	const page = 12 // timeouts per answer, because an answer covers a page of records
	m.work = newLong(cmd, page*f.timeout)
	if err := m.work.end(m.move()); err != nil {
		return store.ExplainWith(doing, err, "check that both stores are running, and repeat the command")
	}
	return m.print(cmd, f.output)
}

// mover moves the names of one command line.
type mover struct {
	from, to side
	dryRun   bool
	prefix   string
	work     *long
	result   moved
}

// move first makes the tokens of the new store continue above all tokens that the old store has issued. Then it moves
// the names one by one.
func (m *mover) move() error {
	ctx := m.work.ctx
	highest, err := m.from.highest(ctx)
	if err != nil {
		return err
	}
	if !m.dryRun && m.to.client != nil {
		highest++ // so that differ notices if both stores are the same
	}
	if err := m.to.above(ctx, highest, m.dryRun); err != nil {
		return err
	}
	if err := m.differ(ctx, highest); err != nil {
		return err
	}
	m.result.Above = uint64(highest)
	if m.from.client == nil {
		return m.fromRevisions(highest)
	}
	move := claim.Move{Prefix: m.prefix, Left: m.stays, Progress: func(seen, moved int) {
		m.work.progress("%d names checked, %d moved", seen, moved)
	}}
	if !m.dryRun {
		move.To = func(ctx context.Context, r *claim.Record) error {
			m.work.heard()
			if err := m.to.inherit(ctx, r.Name, r.Token, r.Past); err != nil {
				return err
			}
			return m.to.inheritMark(ctx, r.Name, r.Mark)
		}
	}
	n, err := m.from.client.Move(ctx, move)
	m.result.Moved = &n
	return err
}

// differ returns an error if both URLs name one database: then the floor of the old store is the one just raised.
func (m *mover) differ(ctx context.Context, raised leasekeeper.Token) error {
	if m.dryRun || m.from.client == nil || m.to.client == nil {
		return nil
	}
	const anyName = "floor" // the answer about any name has the floor
	s, err := m.from.client.Get(ctx, anyName)
	if err == nil && s.Floor >= raised {
		err = command.WrongUsage("--from and --to are the same store, or another command is moving names back: nothing was moved")
	}
	return err
}

// fromRevisions moves the free names of a store that keeps no records of them. Their tokens were at most highest, so the
// tokens of all names that the new store knows must continue above highest. Then it copies the marks of the names that do not
// stay.
func (m *mover) fromRevisions(highest leasekeeper.Token) error {
	ctx, checked := m.work.ctx, 0
	err := m.to.each(ctx, m.prefix, func(i backend.Info) error {
		checked++
		m.work.progress("%d names of the new store checked", checked)
		if i.Err != nil {
			m.stays(i.Name, i.Err)
			return nil
		}
		if m.dryRun {
			return nil
		}
		err := m.to.inherit(ctx, i.Name, highest, nil)
		if errors.Is(err, backend.ErrHeld) {
			m.stays(i.Name, err)
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	checked = 0
	err = m.from.each(ctx, m.prefix, func(i backend.Info) error {
		checked++
		m.work.progress("%d names of the old store checked", checked)
		if i.Held {
			m.stays(i.Name, &backend.HeldError{Name: i.Name, Holder: i.Holder, Token: i.Token, Ends: max(0, i.Remaining)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.copyMarks()
}

// copyMarks copies the marks of a store that keeps them apart from its names, except those of names that stay. The old
// store keeps its marks. A mark in the new store only rises, so the command can be repeated.
func (m *mover) copyMarks() error {
	stays := make(map[string]bool, len(m.result.Stay))
	for _, s := range m.result.Stay {
		stays[s.Name] = true
	}
	lister, err := backend.Can[backend.MarkLister](m.from.Backend)
	if err != nil {
		return err
	}
	copied := 0
	m.result.Marks = &copied
	const page = 500
	for after := ""; ; {
		marks, err := lister.ListMarks(m.work.ctx, m.prefix, after, page)
		if err != nil {
			return err
		}
		for _, mark := range marks {
			m.work.progress("%d marks copied", copied)
			if stays[mark.Name] {
				continue
			}
			switch err := m.copyMark(mark); {
			case err == nil:
				copied++
			case errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrInvalid):
				m.stays(mark.Name, err)
			default:
				return err
			}
		}
		if len(marks) < page {
			return nil
		}
		after = marks[len(marks)-1].Name
	}
}

// stays records that a name was not moved.
func (m *mover) stays(name string, why error) {
	m.result.Stay = append(m.result.Stay, staying{name, why.Error()})
}

// print prints the result. It returns an error if names stay.
func (m *mover) print(cmd *cobra.Command, output string) error {
	var err error
	if output == console.JSON {
		err = console.PrintJSON(cmd.OutOrStdout(), m.result)
	} else {
		for _, s := range m.result.Stay {
			console.PrintLine(cmd.OutOrStdout(), "%s stays: %s", console.Readable([]byte(s.Name)), s.Why) // the last PrintLine returns the error
		}
		err = console.PrintLine(cmd.OutOrStdout(), "%s", m.summary())
		if err == nil && m.result.Marks != nil && *m.result.Marks > 0 {
			err = console.PrintLine(cmd.OutOrStdout(), "%s", m.marksSummary())
		}
	}
	if err == nil && len(m.result.Stay) > 0 {
		err = &command.Error{Code: command.ExitFailed}
	}
	return err
}

func (m *mover) summary() string {
	switch {
	case m.result.Moved == nil && m.dryRun:
		return fmt.Sprintf("free names would be moved: tokens would continue above %d", m.result.Above)
	case m.result.Moved == nil:
		return fmt.Sprintf("free names were moved: tokens continue above %d", m.result.Above)
	case m.dryRun:
		return console.Plural(*m.result.Moved, "name", "names") + " would be moved"
	}
	return fmt.Sprintf("%s: tokens continue above %d", console.Plural(*m.result.Moved, "name was moved", "names were moved"), m.result.Above)
}

func (m *mover) copyMark(mark backend.NamedMark) error {
	if mark.Err != nil || m.dryRun {
		return mark.Err
	}
	return m.to.inheritMark(m.work.ctx, mark.Name, mark.Mark)
}

func (m *mover) marksSummary() string {
	copied, were := console.Plural(*m.result.Marks, "mark", "marks"), "was"
	switch {
	case m.dryRun:
		were = "would be"
	case *m.result.Marks != 1:
		were = "were"
	}
	return copied + " of recurring work " + were + " copied"
}

// side is a store that names move from or to. It is a database, or a store whose tokens are its revisions.
type side struct {
	backend.Backend
	client *claim.Client // nil if the store is not a database
}

func sideOf(b backend.Backend) (side, error) {
	if client, err := clientOf(b, "", ""); err == nil {
		return side{b, client}, nil
	}
	switch b.Scheme() {
	case "etcd", "leasekeeper":
		return side{b, nil}, nil
	}
	return side{}, &backend.UnsupportedError{Backend: b.Scheme(), What: "moving names", Instead: "its leases end with the program"}
}

// highest returns a token that is not below any token that the store has issued.
func (s side) highest(ctx context.Context) (leasekeeper.Token, error) {
	if s.client != nil {
		highest, _, err := s.client.HighestToken(ctx)
		return highest, err
	}
	return s.revision(ctx)
}

// revision returns the present revision of the store: the token of a lease of a new name, which it acquires and
// releases.
func (s side) revision(ctx context.Context) (leasekeeper.Token, error) {
	var id backend.ID
	_, _ = rand.Read(id[:]) // never fails
	const ttl = 10 * time.Second
	l, grant, err := s.Claim(ctx, backend.Claim{
		ID: id, Name: "leasekeeper/move/" + hex.EncodeToString(id[:]), Holder: backend.Holder{ID: "leasekeeper move"}, TTL: ttl,
	})
	if l != nil {
		err = errors.Join(err, s.Release(ctx, l))
	}
	return grant.Token, err
}

// above ensures that the store issues only tokens above t from now on.
func (s side) above(ctx context.Context, t leasekeeper.Token, dryRun bool) error {
	switch {
	case s.client != nil && dryRun:
		return nil
	case s.client != nil:
		_, err := s.client.RaiseFloor(ctx, t)
		return err
	}
	revision, err := s.revision(ctx)
	if err == nil && revision <= t {
		err = command.Failed("could not move names: the store of --to (%s) uses its revision as token and is at %d, but the store of --from has issued tokens up to %d, so tokens would not keep growing: move to a database, or to a store with a higher revision", s.Scheme(), revision, t)
	}
	return err
}

// inherit ensures that the tokens of a name continue above last.
func (s side) inherit(ctx context.Context, name string, last leasekeeper.Token, past []backend.Tenure) error {
	if s.client != nil {
		return s.client.Inherit(ctx, name, last, past)
	}
	// The revisions of the store are above last. Only the present holder of the name, or a waiter in its queue, can have
	// an earlier token.
	i, err := s.Get(ctx, name)
	if err == nil && i.Held && i.Token <= last {
		err = &backend.HeldError{Name: name, Holder: i.Holder, Token: i.Token, Ends: max(0, i.Remaining)}
	}
	return err
}

// inheritMark ensures that the mark of a name is at least m.
func (s side) inheritMark(ctx context.Context, name string, m backend.Mark) error {
	switch {
	case m.IsZero():
		return nil
	case s.client != nil:
		return s.client.InheritMark(ctx, name, m)
	}
	marker, err := backend.Can[backend.Marker](s.Backend)
	if err != nil {
		return err
	}
	const attempts = 8
	for range attempts {
		is, err := marker.Mark(ctx, name)
		if err != nil {
			return err
		}
		raised, err := is.Raised(m.Tick, m.Token)
		if err != nil || raised == is {
			return err
		}
		if done, err := marker.ReplaceMark(ctx, name, is, raised); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: other clients changed the mark of %s at each attempt", backend.ErrContention, name)
}

// each calls do for the names that begin with prefix.
func (s side) each(ctx context.Context, prefix string, do func(backend.Info) error) error {
	const page = 500
	for after := ""; ; {
		names, err := s.List(ctx, prefix, after, page)
		if err != nil {
			return err
		}
		for _, i := range names {
			if err := do(i); err != nil {
				return err
			}
		}
		if len(names) < page {
			return nil
		}
		after = names[len(names)-1].Name
	}
}
