package replica

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Transcripts show what goes into a member and what comes out. Requests are numbered from 1.
//
//	grant ID TTL | revoke ID | renew ID... | put KEY VALUE [LEASE] | del KEY
//	compact REVISION [physical]
//	swap KEY OLD NEW [LEASE] a txn: if KEY is OLD put NEW and read it, else delete KEY
//	claim NAME ID TTL [wait] | release NAME ID | transfer NAME ID | revoke-name NAME NOTE [now]
//	claim NAME ID TTL wait urgent... with a priority: 1, or more with more words; prefer NAME ID
//	finish NAME ID TICK [HOLD] | raise NAME ID TICK   TICK may be "none"
//	pin NAME REASON | unpin NAME | name NAME | place NAME ID
//	as USER COMMAND...       any of these as a user of the present auth revision; access COMMAND... see access_test.go
//	read | ttl ID | list     ask; each is one Step of its own unless "together" gathers several
//	together                 the following lines of input are one Step
//	disk                     the disk reports its oldest write
//	disk-fails               ... as failed
//	settle                   the disk reports until there is nothing to report
//	advance DURATION         time passes in ticks, and everything settles at each
//	sleep DURATION           time passes, and nobody calls Step
//	crash [domain=NAME]      the machine loses what was not synced, and the member starts again
//	crash [clock=DURATION]   ... with clocks that show this, under the same name
//	dump | policy            the replicated state
//	readable                 what of the past can be read
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(t *testing.T, name string) transcript.Play {
		s := &scene{world: newWorldOf(t, func(w *world) {
			if name == "retention" {
				w.retention = 4 * time.Second
			}
		})}
		t.Cleanup(func() { s.world.close() })
		return func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.world.t = t, t
			return s.run(d)
		}
	})
}

type scene struct {
	t      *testing.T
	world  *world
	lastID uint64
}

func (s *scene) run(d *datadriven.TestData) string {
	w := s.world
	switch d.Cmd {
	case "together":
		var events []Event
		for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			events = append(events, s.event(strings.Fields(line)))
		}
		return s.show(s.step(events...))
	case "at-once":
		effects, left := w.answer([]Event{s.event(strings.Fields(d.Input))})
		if len(left) > 0 {
			return "left to Step"
		}
		text := s.show(effects)
		if len(effects) > 0 && effects[len(effects)-1] == (WakeAt{Wait: 1}) {
			text += "Step is to be called now\n"
		}
		return text
	case "disk":
		return s.show(w.report())
	case "disk-fails":
		p := w.writes[0]
		return s.show(s.step(Persisted{Sequence: p.Sequence, Err: errors.New("input/output error")}))
	case "settle":
		return s.show(w.settle())
	case "advance":
		return s.show(w.advance(transcript.Duration(s.t, d.CmdArgs[0].Key)))
	case "sleep":
		w.clock.Advance(transcript.Duration(s.t, d.CmdArgs[0].Key))
		return ""
	case "start":
		return s.show(s.step(Tick{}))
	case "crash":
		s.world = w.crashed(nil)
		d.MaybeScanArgs(s.t, "domain", (*string)(&s.world.domain))
		if s.world.domain != w.domain { // another boot: other clocks
			s.world.clock = clock.NewManual(clock.Instant{})
		}
		if d.HasArg("clock") {
			var at string
			d.ScanArgs(s.t, "clock", &at)
			s.world.clock = clock.NewManual(clock.Instant{}.Add(transcript.Duration(s.t, at)))
		}
		w.close()
		s.world.start()
		return s.show(append(s.step(Tick{}), s.world.settle()...))
	case "dump":
		return w.dump()
	case "policy":
		return showPolicy(w.replica.Access().Load())
	case "readable":
		return fmt.Sprintf("from revision %d, trimmed to %d", w.replica.Store().CompactRevision(), w.replica.Store().Trimmed())
	}
	words := []string{d.Cmd}
	for _, arg := range d.CmdArgs {
		words = append(words, arg.Key)
	}
	return s.show(s.step(s.event(words)))
}

// step is world.step for transcripts that mean to see a member halt.
func (s *scene) step(events ...Event) []Effect {
	effects := lasting(s.world.replica.Step(s.world.clock.Now(), events...))
	s.world.effects = effects
	for _, e := range effects {
		if _, halt := e.(Halt); !halt {
			s.world.perform(e)
		}
	}
	return effects
}

func (s *scene) event(words []string) Event {
	if words[0] == "as" {
		return s.as(words[1], s.event(words[2:]))
	}
	s.lastID++
	id := s.lastID
	switch words[0] {
	case "access":
		return Request{ID: id, Command: accessCommand(s.t, words[1:])}
	case "grant":
		return Request{ID: id, Command: entry.Grant{Lease: s.lease(words[1]), TTL: transcript.Duration(s.t, words[2])}}
	case "revoke":
		return Request{ID: id, Command: entry.Revoke{Lease: s.lease(words[1])}}
	case "put":
		put := keyspace.PutRequest{Key: []byte(words[1]), Value: []byte(words[2])}
		if len(words) > 3 {
			put.Lease = int64(s.lease(words[3]))
		}
		return Request{ID: id, Command: put}
	case "del":
		return Request{ID: id, Command: keyspace.DeleteRequest{Key: []byte(words[1])}}
	case "compact":
		rev, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return Request{ID: id, Command: entry.Compact{Revision: rev, Physical: len(words) > 2}}
	case "swap":
		key := []byte(words[1])
		put := keyspace.PutRequest{Key: key, Value: []byte(words[3]), PrevKV: true}
		if len(words) > 4 {
			put.Lease = int64(s.lease(words[4]))
		}
		return Request{ID: id, Command: keyspace.TxnRequest{
			Compare: []keyspace.Compare{{Target: keyspace.CompareValue, Key: key, Value: []byte(words[2])}},
			Success: []keyspace.TxnOp{put, keyspace.RangeRequest{Key: key}},
			Failure: []keyspace.TxnOp{keyspace.DeleteRequest{Key: key}},
		}}
	case "renew":
		var ids []lessor.ID
		for _, word := range words[1:] {
			ids = append(ids, s.lease(word))
		}
		return Renewal{ID: id, Leases: ids}
	case "read":
		return Read{ID: id}
	case "ttl":
		return Inspection{ID: id, Query: TimeToLive{Lease: s.lease(words[1]), Items: true}}
	case "list":
		return Inspection{ID: id, Query: ListLeases{}}
	}
	if e := s.nameEvent(id, words); e != nil {
		return e
	}
	s.t.Fatalf("unknown command %q", words)
	return nil
}

func (s *scene) lease(word string) lessor.ID {
	id, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return lessor.ID(id)
}

func (s *scene) show(effects []Effect) string {
	var b strings.Builder
	for _, effect := range effects {
		switch e := effect.(type) {
		case Persist:
			fmt.Fprintf(&b, "persist #%d: %s\n", e.Sequence, s.showBatch(e.Batch))
		case Reply:
			fmt.Fprintf(&b, "reply %d: %s\n", e.ID, showReply(e))
		case Renewed:
			for _, lease := range e.Leases {
				fmt.Fprintf(&b, "renewal %d: lease %d %s\n", e.ID, lease.ID, showRenewed(lease))
			}
		case ReadAt:
			fmt.Fprintf(&b, "read %d: at revision %d\n", e.ID, e.Header.Revision)
		case Publish:
			for _, change := range e.Changes {
				fmt.Fprintf(&b, "publish revision %d: %s\n", change.Revision, showChange(change))
			}
			for _, change := range e.Names {
				fmt.Fprintln(&b, showNameChange(change))
			}
			for _, login := range e.Logins {
				fmt.Fprintf(&b, "publish login of %s at auth revision %d\n", login.User, login.Revision)
			}
		case Halt:
			fmt.Fprintf(&b, "halt: %v\n", e.Err)
		}
	}
	return b.String()
}

// showBatch shows the log entries that a batch holds.
func (s *scene) showBatch(batch *pebble.Batch) string {
	var parts []string
	for r := batch.Reader(); ; {
		kind, key, value, ok, err := r.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		if !ok {
			return strings.Join(parts, ", ")
		}
		if kind == pebble.InternalKeyKindLogData {
			parts = append(parts, "the state so far")
			continue
		}
		switch key[0] {
		case record.FamilyLog:
			if len(value) > 0 {
				parts = append(parts, s.showEntry(key, value))
			}
		case record.FamilyRaft:
			hard := new(raftpb.HardState)
			if err := proto.Unmarshal(value, hard); err != nil {
				s.t.Fatal(err)
			}
			parts = append(parts, fmt.Sprintf("term %d vote %x", hard.GetTerm(), hard.GetVote()))
		default:
			parts = append(parts, hex.EncodeToString(key))
		}
	}
}

func (s *scene) showEntry(key, value []byte) string {
	entry, err := raftlog.Entry(key, value)
	if err != nil {
		s.t.Fatal(err)
	}
	var commands logpb.Entry
	if err := proto.Unmarshal(entry.GetData(), &commands); err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, c := range commands.Commands {
		name := showCommand(c)
		if c.Caller != nil {
			name = fmt.Sprintf("%s of %s", name, c.Caller.User)
		}
		names = append(names, name)
	}
	return fmt.Sprintf("entry %d [%s]", entry.GetIndex(), strings.Join(names, "; "))
}

func showCommand(c *logpb.Command) string {
	switch op := c.Op.(type) {
	case *logpb.Command_Put:
		return fmt.Sprintf("put %s", op.Put.Key)
	case *logpb.Command_DeleteRange:
		return fmt.Sprintf("delete %s", op.DeleteRange.Key)
	case *logpb.Command_Grant:
		return fmt.Sprintf("grant %d", op.Grant.Id)
	case *logpb.Command_Revoke:
		return fmt.Sprintf("revoke %d", op.Revoke.Id)
	case *logpb.Command_Txn:
		return fmt.Sprintf("txn if %d then %d else %d", len(op.Txn.Compare), len(op.Txn.Success), len(op.Txn.Failure))
	case *logpb.Command_Access:
		return strings.TrimPrefix(fmt.Sprintf("%T", op.Access.Change), "*logpb.AccessChange_")
	case *logpb.Command_Compact:
		return fmt.Sprintf("compact %d", op.Compact.Revision)
	case *logpb.Command_Expire:
		return "expire" + showRefs(op.Expire.Leases)
	case *logpb.Command_Checkpoint:
		var quiet []string
		for _, q := range op.Checkpoint.Quiet {
			quiet = append(quiet, fmt.Sprintf(" %d has %v", q.Lease.Id, time.Duration(q.RemainingNs)))
		}
		if len(op.Checkpoint.Cleared) > 0 {
			quiet = append(quiet, " cleared"+showRefs(op.Checkpoint.Cleared))
		}
		return "checkpoint" + strings.Join(quiet, ",")
	}
	return showNameCommand(c)
}

func showRefs(refs []*logpb.LeaseRef) string {
	var b strings.Builder
	for _, ref := range refs {
		fmt.Fprintf(&b, " %d", ref.Id)
	}
	return b.String()
}

func showReply(r Reply) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	at := fmt.Sprintf(" (revision %d)", r.Header.Revision)
	switch result := r.Result.(type) {
	case Granted:
		return fmt.Sprintf("granted %d for %v", result.ID, result.TTL) + at
	case LeaseStatus:
		return fmt.Sprintf("%d has %v of %v, items %v", result.ID, result.Remaining, result.Granted, result.Items) + at
	case Ends:
		slices.SortFunc(result, lessor.End.Compare)
		var ids []string
		for _, lease := range result {
			ids = append(ids, fmt.Sprint(lease.ID))
		}
		return "leases " + strings.Join(ids, " ") + at
	case access.Changed:
		return fmt.Sprintf("applied as entry %d", result.Index) + at
	case keyspace.DeleteResult:
		return fmt.Sprintf("deleted %d", result.Deleted) + at
	case keyspace.TxnResult:
		return fmt.Sprintf("succeeded %v, %d results", result.Succeeded, len(result.Results)) + at
	}
	if text := showNameReply(r.Result); text != "" {
		return text + at
	}
	return "done" + at
}

func showRenewed(lease RenewedLease) string {
	if lease.Err != nil {
		return lease.Err.Error()
	}
	return "for " + lease.TTL.String()
}

func showChange(c keyspace.Change) string {
	var parts []string
	for _, e := range c.Events {
		verb := "put"
		if e.Type == keyspace.EventDelete {
			verb = "delete"
		}
		parts = append(parts, fmt.Sprintf("%s %s", verb, e.KV.Key))
	}
	for _, key := range c.Ended {
		parts = append(parts, "delete "+key)
	}
	return strings.Join(parts, ", ")
}
