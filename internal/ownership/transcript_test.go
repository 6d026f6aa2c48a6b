package ownership

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// TestTranscripts runs the specification in testdata. A file is a conversation with one registry, its lessor, and a
// store of keys and records. Each command is one log entry; each command that changes keys is one revision.
//
//	claim NAME ID TTL [wait] [priority=N]   also shows the answer
//	prefer NAME ID
//	queue NAME                    the owner, the waiters, and the waiters that never own the name
//	release NAME ID | transfer NAME ID | pin NAME REASON | unpin NAME
//	finish NAME ID [DURATION]     the holder has completed its work, and the name is held on for a time
//	raise NAME ID                 may the lease raise the mark of the name?
//	revoke NAME NOTE [now] [token=N]
//	grant ID TTL                  a lease without a claim
//	put KEY [lease=ID]            as a client of etcd's API does; several keys are one revision
//	delete KEY                    as a client of etcd's API does
//	end ID                        the lease expires
//	renew ID                      why a renewal is refused
//	name NAME | place NAME ID | stored NAME
//	advance DURATION              time passes
//	restart                       the registry is restored from what is stored, without what ended recently
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play {
		w := newWorld()
		return func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.run(d)
		}
	})
}

// world is the environment of a registry in a test.
type world struct {
	t        *testing.T
	registry *Registry
	leases   *lessor.Lessor
	clock    *clock.Manual
	index    uint64
	revision int64
	keys     map[string]storedKey
	records  map[string]Record
	past     map[string]map[uint64]Tenure // by name and number modulo MaxPast
	token    int64                        // of forgotten names
	deleted  []string                     // keys deleted together with a lease
	env      Env
}

type storedKey struct {
	value   string
	lease   lessor.ID
	created int64
}

func newWorld() *world {
	w := &world{
		registry: New(), leases: lessor.New(lessor.Config{}), clock: clock.NewManual(clock.Instant{}), revision: 1,
		keys: make(map[string]storedKey), records: make(map[string]Record), past: make(map[string]map[uint64]Tenure),
	}
	w.leases.SetRangeDeleter(func() lessor.TxnDelete { return deletion{w} })
	w.leases.BeginLeadership(w.at(), w.clock.Now())
	w.leases.Promote(0, w.clock.Now(), 1)
	return w
}

// deletion collects the keys that the end of a lease deletes.
type deletion struct{ w *world }

func (d deletion) DeleteRange(key, _ []byte) (n, revision int64) {
	d.w.deleted = append(d.w.deleted, string(key))
	return 1, 0
}

func (deletion) End() {}

// at begins a log entry.
func (w *world) at() lessor.Position {
	w.index++
	return lessor.At(w.index, 0)
}

func (w *world) newView() View { return View{Leases: w.leases, Stored: w, Now: w.clock.Now()} }

// Tenure implements Stored.
func (w *world) Tenure(name string) (*Tenure, error) {
	if current := w.records[name].Current; current != nil {
		tenure := *current
		return &tenure, nil
	}
	return nil, nil
}

// Card implements Stored.
func (w *world) Card(name string, lease lessor.ID) ([]byte, error) {
	k, ok := w.keys[string(Key(name, lease))]
	if !ok {
		return nil, errors.New("no such key")
	}
	return []byte(k.value), nil
}

// Past implements Stored.
func (w *world) Past(name string, number uint64) (*Tenure, error) {
	tenure, ok := w.past[name][number%MaxPast]
	if !ok {
		return nil, errors.New("no such tenure")
	}
	return &tenure, nil
}

func (w *world) run(d *datadriven.TestData) string {
	w.env.View, w.env.At, w.env.Watched = w.newView(), w.at(), true
	w.env.Wall = w.clock.Now().Raw / int64(time.Millisecond)
	args := make([]string, len(d.CmdArgs))
	for i, arg := range d.CmdArgs {
		args[i] = arg.Key
		for _, value := range arg.Vals {
			args[i] += "=" + value
		}
	}
	var out string
	switch d.Cmd {
	case "advance":
		w.clock.Advance(transcript.Duration(w.t, args[0]))
	case "restart":
		w.restart()
	case "queue":
		out = w.showQueue(args[0])
	case "name", "place", "stored", "renew":
		out = w.ask(d.Cmd, args)
	default:
		out = w.runChange(d.Cmd, args)
	}
	return out + w.publish()
}

// runChange runs a command that may change something.
func (w *world) runChange(command string, args []string) string {
	switch command {
	case "claim":
		return w.runClaim(args)
	case "release":
		end, err := w.registry.Release(w.leases, Release{Name: args[0], Lease: w.lease(args[1])})
		if end {
			w.end(w.lease(args[1]), WhyReleased, "")
		}
		return result(fmt.Sprintf("ended %v", end), err)
	case "transfer":
		next, err := w.registry.Transfer(Transfer{Name: args[0], Lease: w.lease(args[1])})
		if err == nil {
			w.end(w.lease(args[1]), WhyTransferred, "")
		}
		return result(fmt.Sprintf("the next token is %d", next), err)
	case "revoke":
		return w.runRevoke(args)
	case "prefer":
		return w.runPrefer(args)
	case "finish":
		return w.runFinish(args)
	case "raise":
		token, err := w.registry.CheckRaise(RaiseMark{Name: args[0], Lease: w.lease(args[1])})
		return result(fmt.Sprintf("token %d may", token), err)
	case "pin":
		return result("pinned", w.registry.Pin(&w.env, Pin{Name: args[0], Reason: args[1]}))
	case "unpin":
		return result("unpinned", w.registry.Unpin(&w.env, Unpin{Name: args[0]}))
	case "grant":
		_, err := w.leases.Grant(w.lease(args[0]), transcript.Duration(w.t, args[1]), w.env.At, w.clock.Now())
		return result("granted", err)
	case "end":
		w.end(w.lease(args[0]), WhyExpired, "")
	case "put":
		w.put(args)
	case "delete":
		w.deleteKeys(args)
		w.update(WhyDeleted, "")
	default:
		w.t.Fatalf("unknown command %q", command)
	}
	return ""
}

func (w *world) runClaim(args []string) string {
	c := Claim{Name: args[0], Lease: w.lease(args[1]), TTL: transcript.Duration(w.t, args[2]), Holder: []byte("card-" + args[1]), Wait: len(args) > 3}
	if len(args) > 4 {
		n, err := strconv.ParseInt(strings.TrimPrefix(args[4], "priority="), 10, 32)
		w.must(err)
		c.Priority = int32(n)
	}
	answer, create, err := w.registry.Claim(w.newView(), c)
	if create {
		_, err = w.leases.Grant(c.Lease, c.TTL, w.env.At, w.clock.Now())
		w.must(err)
		keys, values := w.dequeue(c.Name, w.registry.Overtaken(c))
		w.revision++
		w.set(string(Key(c.Name, c.Lease)), string(c.Holder), c.Lease)
		w.update(WhyDeleted, "")
		answer, err = w.registry.Created(w.newView(), c)
		w.enqueue(keys, values)
	}
	switch {
	case err != nil:
		return result("", err)
	case answer.Lease == lessor.NoLease:
		return "refused: " + showState(*answer.Current) + "\n"
	case answer.Before > 0:
		return fmt.Sprintf("lease %d waits behind %d, token %d\n", answer.Lease, answer.Before, answer.Token)
	}
	return fmt.Sprintf("lease %d owns it for %v, token %d\n", answer.Lease, answer.TTL, answer.Token)
}

// dequeue deletes the keys of claims that are overtaken, and returns them with their values.
func (w *world) dequeue(name string, leases []lessor.ID) (keys, values []string) {
	if len(leases) == 0 {
		return nil, nil
	}
	w.registry.Requeue(&w.env, leases)
	for _, id := range leases {
		key := string(Key(name, id))
		keys, values = append(keys, key), append(values, w.keys[key].value)
	}
	w.deleteKeys(keys)
	w.update(WhyDeleted, "")
	return keys, values
}

// enqueue creates keys again, each at a revision of its own.
func (w *world) enqueue(keys, values []string) {
	for i, key := range keys {
		w.revision++
		_, lease, _ := parseKey([]byte(key))
		w.set(key, values[i], lease)
		w.update(WhyDeleted, "")
	}
}

func (w *world) runPrefer(args []string) string {
	leases, err := w.registry.Prefer(&w.env, Prefer{Name: args[0], Lease: w.lease(args[1])})
	w.enqueue(w.dequeue(args[0], leases))
	return result("preferred", err)
}

func (w *world) showQueue(name string) string {
	var b strings.Builder
	waiters, barred, _ := w.registry.Waiters(name)
	for _, id := range waiters {
		place, err := w.registry.Place(name, id)
		w.must(err)
		fmt.Fprintf(&b, "lease %d token %d\n", id, place.Token)
	}
	if len(barred) > 0 {
		fmt.Fprintf(&b, "barred %v\n", barred)
	}
	return b.String()
}

func (w *world) runRevoke(args []string) string {
	op := Revoke{Name: args[0], Note: args[1]}
	for _, arg := range args[2:] {
		if token, ok := strings.CutPrefix(arg, "token="); ok {
			n, err := strconv.ParseInt(token, 10, 64)
			w.must(err)
			op.Token = n
		} else {
			op.Now = true
		}
	}
	answer, end, err := w.registry.Revoke(&w.env, op)
	if end != lessor.NoLease {
		w.end(end, WhyRevoked, op.Note)
	}
	return result(fmt.Sprintf("revoked token %d, free in %v", answer.Token, answer.Left), err)
}

func (w *world) runFinish(args []string) string {
	op := Finish{Name: args[0], Lease: w.lease(args[1])}
	if len(args) > 2 {
		op.Hold = transcript.Duration(w.t, args[2])
	}
	token, done, err := w.registry.CheckFinish(w.newView(), op)
	if done || err != nil {
		return result("nothing is left to do", err)
	}
	end, err := w.registry.Finish(&w.env, op)
	if end {
		w.end(op.Lease, WhyReleased, "")
	}
	return result(fmt.Sprintf("token %d has finished, ended %v", token, end), err)
}

func (w *world) put(args []string) {
	w.revision++
	for _, arg := range args {
		name, lease, _ := strings.Cut(arg, "=")
		id := lessor.NoLease
		if lease != "" {
			id = w.lease(lease)
		}
		w.set(name, fmt.Sprintf("card of revision %d", w.revision), id)
	}
	w.update(WhyDeleted, "")
}

// set puts a key at the current revision.
func (w *world) set(name, value string, lease lessor.ID) {
	k, there := w.keys[name]
	if !there {
		k.created = w.revision
	}
	item := []lessor.Item{{Key: name}}
	if k.lease != lessor.NoLease {
		w.must(w.leases.Detach(k.lease, item))
	}
	if lease != lessor.NoLease {
		w.must(w.leases.Attach(lease, item))
	}
	k.value, k.lease = value, lease
	w.keys[name] = k
	w.registry.KeyPut([]byte(name), []byte(value), lease, k.created)
}

func (w *world) deleteKeys(names []string) {
	w.revision++
	for _, name := range names {
		if k := w.keys[name]; k.lease != lessor.NoLease {
			w.must(w.leases.Detach(k.lease, []lessor.Item{{Key: name}}))
		}
		delete(w.keys, name)
		w.registry.KeyDeleted([]byte(name))
	}
}

// end ends a lease and deletes its keys, at one revision.
func (w *world) end(id lessor.ID, why Why, note string) {
	_, err := w.leases.Revoke(id)
	w.must(err)
	if len(w.deleted) == 0 {
		return
	}
	w.revision++
	slices.Sort(w.deleted)
	for _, name := range w.deleted {
		delete(w.keys, name)
		w.registry.KeyDeleted([]byte(name))
	}
	w.deleted = nil
	w.update(why, note)
}

// update updates the owners, and ends the claims that have lost their keys.
func (w *world) update(why Why, note string) {
	w.must(w.registry.UpdateOwners(&w.env, w.revision, why, note))
	orphans := slices.Clone(w.env.Effects.Orphans)
	w.store()
	for _, id := range orphans {
		if _, exists := w.leases.Lookup(id); exists {
			w.end(id, why, note)
		}
	}
}

// store stores the effects so far.
func (w *world) store() {
	e := &w.env.Effects
	for _, past := range e.Past {
		if w.past[past.Name] == nil {
			w.past[past.Name] = make(map[uint64]Tenure)
		}
		w.past[past.Name][past.Number%MaxPast] = *past.Tenure
	}
	for _, record := range e.Records {
		if record.Current != nil {
			current := *record.Current
			record.Current = &current
		}
		w.records[record.Name] = record
	}
	for _, name := range e.Forgotten {
		delete(w.records, name.Name)
		delete(w.past, name.Name)
	}
	w.token = max(w.token, e.ForgottenToken)
	e.Done()
}

// publish stores the changes of a command, and shows the changes that watchers receive.
func (w *world) publish() string {
	w.store()
	var b strings.Builder
	for _, c := range w.env.Effects.Changes {
		kind := [...]string{"", "acquired", "vacated", "card changed", "status changed", "wait ended"}[c.Kind]
		fmt.Fprintf(&b, "publish %s: %s", c.State.Name, kind)
		if c.State.Held {
			fmt.Fprintf(&b, " by lease %d %q", c.State.Lease, c.State.Holder)
		}
		if c.Lease != lessor.NoLease {
			fmt.Fprintf(&b, "; lease %d %s %q", c.Lease, showWhy(c.Why), c.Note)
		}
		b.WriteString("\n")
	}
	w.env.Effects.Changes = nil
	return b.String()
}

func (w *world) ask(command string, args []string) string {
	switch command {
	case "name":
		return showState(w.registry.State(w.newView(), args[0])) + "\n"
	case "place":
		place, err := w.registry.Place(args[0], w.lease(args[1]))
		if err != nil {
			err = w.registry.Explain(w.leases, w.lease(args[1]), err)
		}
		return result(fmt.Sprintf("behind %d, token %d", place.Before, place.Token), err)
	case "renew":
		_, err := w.leases.Renew(w.lease(args[0]), w.clock.Now())
		if err != nil {
			err = w.registry.Explain(w.leases, w.lease(args[0]), err)
		}
		return result("renewed", err)
	}
	return w.showStored(args[0])
}

// showStored shows a name's record, its queue and its past.
func (w *world) showStored(name string) string {
	r, ok := w.records[name]
	if !ok {
		return "nothing is stored\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d tenures ended, the last of token %d; revision %d", r.Ended, r.Last, r.Revision)
	if r.Current != nil {
		fmt.Fprintf(&b, "; token %d of lease %d %q from %d%s", r.Current.Token, r.Current.Lease, r.Current.Holder, r.Current.From, showFinished(r.Current))
	} else {
		fmt.Fprintf(&b, "; free since %d.%d", r.Freed, r.FreedOrder)
	}
	if r.Pinned != nil {
		fmt.Fprintf(&b, "; pinned %q", *r.Pinned)
	}
	if r.Revoked != nil {
		fmt.Fprintf(&b, "; revoked %q", *r.Revoked)
	}
	waiters, barred, _ := w.registry.Waiters(name)
	fmt.Fprintf(&b, "\nqueue %v, barred %v\n", waiters, barred)
	for i := range min(r.Ended, MaxPast) {
		t := w.past[name][(r.Ended-1-i)%MaxPast]
		fmt.Fprintf(&b, "before: token %d of lease %d %q from %d to %d, %s %q\n", t.Token, t.Lease, t.Holder, t.From, t.To, showWhy(t.Why), t.Note)
		if t.Finished {
			b.WriteString("  finished\n")
		}
	}
	return b.String()
}

// restart restores the registry from the stored data. The result must not depend on memory.
func (w *world) restart() {
	w.store()
	old := w.registry
	w.registry = New()
	w.registry.RestoreForgotten(w.token)
	for _, id := range old.Claims() {
		claim, _ := old.ClaimRecord(id)
		w.registry.RestoreClaim(id, claim)
	}
	for _, r := range w.records { // order: each record is restored by itself
		w.registry.RestoreRecord(r)
	}
	for name, k := range w.keys { // order: each key is restored by itself
		w.registry.RestoreKey([]byte(name), k.lease, k.created)
	}
	fresh, err := w.registry.Complete()
	w.must(err)
	if len(fresh) > 0 {
		w.t.Errorf("names had no records: %v", fresh)
	}
	if got, want := w.registry.FreeNames(), old.FreeNames(); !slices.Equal(got, want) {
		w.t.Errorf("free are %v, were %v", got, want)
	}
	for _, name := range old.Names() {
		got, gotBarred, _ := w.registry.Waiters(name)
		if want, barred, _ := old.Waiters(name); !slices.Equal(got, want) || !slices.Equal(gotBarred, barred) {
			w.t.Errorf("%s: waiters are %v and %v, were %v and %v", name, got, gotBarred, want, barred)
		}
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *world) lease(word string) lessor.ID {
	id, err := strconv.ParseInt(word, 10, 64)
	w.must(err)
	return lessor.ID(id)
}

func result(text string, err error) string {
	if err != nil {
		text = err.Error()
	}
	return text + "\n"
}

func showFinished(t *Tenure) string {
	if t.Finished {
		return ", finished"
	}
	return ""
}

func showWhy(why Why) string {
	return [...]string{"", "released", "expired", "revoked", "transferred", "deleted"}[why]
}

func showState(s State) string {
	text := s.Name + " is free"
	if s.Held {
		text = fmt.Sprintf("%s is owned by lease %d, token %d, for %v of %v, %d wait", s.Name, s.Lease, s.Token, s.Left, s.TTL, s.Waiting)
	}
	if s.Pinned != nil {
		text += fmt.Sprintf(", pinned %q", *s.Pinned)
	}
	if s.Revoked != nil {
		text += fmt.Sprintf(", revoked %q", *s.Revoked)
	}
	if s.Finished {
		text += ", finished"
	}
	return text
}
