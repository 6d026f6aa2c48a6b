package lessor

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
)

// The lessor behaves as the transcripts in testdata specify. A file is a conversation with a cluster:
//
//	cluster A B C           a new cluster; [no-checkpoints] [max-expiries=n] [max-checkpoints=n]
//	lead B                  B wins an election, its first entry is applied, B is promoted; [extend=d]
//	down                    the leader dies: it is demoted, and its proposals are lost
//	grant 1 10s             commit the command and apply it on all members
//	revoke 1                commit the command and apply it on all members
//	renew 1                 ask the leader, or [on=B]
//	advance 3s              on all clocks of all members, or [on=B]
//	suspend 3s              the machines of all members sleep, or [on=B]
//	slew raw=3s boot=2s     time passes differently on the two clocks; [on=B]
//	due                     call Due on the leader; the results go to the outbox
//	outbox                  show what was proposed and is not in the log
//	commit                  commit the outbox, or only the commands [only=n]; [term=t]: under another term
//	drop                    report the outbox, or only the command [only=n], as dropped; [ambiguous]: it stays in the outbox
//	next                    when Due must be called again
//	show                    all leases on the leader, or [on=B]
//	attach 1 a b, detach 1 a, items 1, owner a     on all members
//	remaining 1, overdue    on the leader
//	lag B, catch-up B       B stops applying entries; B applies them again
//	restart B               B recovers from its records; [reboot]: its clocks start again, so it counts again from now
//	leaderships             the table of leaderships; [on=B]
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play { return new(conversation).run })
}

type conversation struct{ *cluster }

func (tr *conversation) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "cluster":
		return tr.create(t, d)
	case "lead":
		var extend time.Duration
		transcript.Scan(t, d, "extend", &extend)
		return strings.Join(tr.lead(tr.member(transcript.Word(d, 0)), extend), "\n")
	case "down":
		tr.leader.lessor.Demote()
		tr.leader, tr.outbox = nil, nil
		return ""
	case "grant":
		tr.append(tr.term, grantCommand{tr.id(d), transcript.Duration(t, transcript.Word(d, 1))})
		return strings.Join(tr.applyAll(), "\n")
	case "revoke":
		tr.append(tr.term, revokeCommand{tr.id(d)})
		return strings.Join(append(tr.applyAll(), tr.takeDeleted()...), "\n")
	case "advance", "suspend", "slew":
		return tr.pass(t, d)
	case "due", "outbox", "commit", "drop":
		return tr.propose(t, d)
	case "attach", "detach", "items", "owner":
		return tr.item(t, d)
	case "lag":
		tr.member(transcript.Word(d, 0)).lags = true
		return ""
	case "catch-up":
		m := tr.member(transcript.Word(d, 0))
		m.lags = false
		return strings.Join(m.catchUp(), "\n")
	case "restart":
		tr.restart(tr.member(transcript.Word(d, 0)), d.HasArg("reboot"))
		return ""
	}
	return tr.ask(t, d)
}

func (tr *conversation) create(t *testing.T, d *datadriven.TestData) string {
	var config Config
	transcript.Scan(t, d, "max-expiries", &config.MaxExpiries)
	transcript.Scan(t, d, "max-checkpoints", &config.MaxCheckpoints)
	var names []string
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 && arg.Key != "no-checkpoints" {
			names = append(names, arg.Key)
		}
	}
	tr.cluster = newCluster(config, !d.HasArg("no-checkpoints"), names...)
	return ""
}

func (tr *conversation) pass(t *testing.T, d *datadriven.TestData) string {
	var raw, boot time.Duration
	switch d.Cmd {
	case "advance":
		raw = transcript.Duration(t, transcript.Word(d, 0))
		boot = raw
	case "suspend":
		boot = transcript.Duration(t, transcript.Word(d, 0))
	case "slew":
		transcript.Scan(t, d, "raw", &raw)
		transcript.Scan(t, d, "boot", &boot)
	}
	for _, m := range tr.members {
		if only := tr.on(t, d, nil); only == nil || only == m {
			m.clocks.AdvanceBy(raw, boot)
		}
	}
	if m := tr.on(t, d, tr.members[0]); len(tr.members) > 1 {
		return fmt.Sprintf("%s: %v", m.name, m.clocks.Now())
	}
	return tr.members[0].clocks.Now().String()
}

func (tr *conversation) propose(t *testing.T, d *datadriven.TestData) string {
	only, term := -1, tr.term
	transcript.Scan(t, d, "only", &only)
	transcript.Scan(t, d, "term", &term)
	var lines []string
	switch d.Cmd {
	case "due":
		for _, command := range tr.due() {
			lines = append(lines, describe(command))
		}
	case "outbox":
		for i, command := range tr.outbox {
			lines = append(lines, fmt.Sprintf("%d: %s", i, describe(command)))
		}
	case "commit", "drop":
		var kept []any
		for i, command := range tr.outbox {
			switch chosen := only < 0 || only == i; {
			case !chosen:
				kept = append(kept, command)
			case d.Cmd == "commit":
				tr.append(term, command)
			default:
				tr.drop(command)
				if d.HasArg("ambiguous") {
					kept = append(kept, command)
				}
			}
		}
		tr.outbox = kept
		lines = append(tr.applyAll(), tr.takeDeleted()...)
	}
	if len(lines) == 0 {
		return map[string]string{"due": "nothing", "outbox": "empty"}[d.Cmd]
	}
	return strings.Join(lines, "\n")
}

func (tr *conversation) takeDeleted() (lines []string) {
	for _, m := range tr.members {
		for _, keys := range m.deleted {
			lines = append(lines, fmt.Sprintf("%s's store deletes %s", m.name, keys))
		}
		m.deleted = nil
	}
	return lines
}

func (tr *conversation) item(t *testing.T, d *datadriven.TestData) string {
	var items []Item
	for _, arg := range d.CmdArgs[1:] {
		items = append(items, Item{arg.Key})
	}
	var result string
	for _, m := range tr.members {
		switch d.Cmd {
		case "attach":
			result = errorOr(m.lessor.Attach(tr.id(d), items), "")
		case "detach":
			result = errorOr(m.lessor.Detach(tr.id(d), items), "")
		case "items":
			result = fmt.Sprint(m.lessor.Items(tr.id(d)))
		case "owner":
			result = fmt.Sprint(m.lessor.GetLease(Item{transcript.Word(d, 0)}))
		}
	}
	return result
}

func (tr *conversation) restart(m *member, reboot bool) {
	var records []Record
	for _, lease := range m.lessor.Leases() {
		record, _ := m.lessor.Record(lease.ID)
		records = append(records, record)
	}
	table := m.lessor.Leaderships()
	items := map[ID][]Item{}
	for _, r := range records {
		items[r.ID] = m.lessor.Items(r.ID)
	}
	if reboot {
		m.clocks = clock.NewManual(clock.Instant{})
		for i := range records {
			records[i].Applied = m.clocks.Now()
		}
		for i := range table {
			table[i].Applied = m.clocks.Now()
		}
	}
	if tr.leader == m {
		tr.leader, tr.outbox = nil, nil
	}
	m.lessor.Recover(func(yield func(Record) bool) {
		for _, r := range records {
			if !yield(r) {
				return
			}
		}
	}, table)
	for id, items := range items {
		if err := m.lessor.Attach(id, items); err != nil {
			panic(err)
		}
	}
}

func (tr *conversation) ask(t *testing.T, d *datadriven.TestData) string {
	m := tr.on(t, d, tr.leader)
	now := m.clocks.Now()
	switch d.Cmd {
	case "renew":
		ttl, err := m.lessor.Renew(tr.id(d), now)
		if err == ErrClearing {
			return fmt.Sprintf("%v, but only once cleared", ttl)
		}
		return errorOr(err, ttl.String())
	case "next":
		wait, ok := m.lessor.NextDue(now)
		if !ok {
			return "never"
		}
		return "in " + wait.String()
	case "remaining":
		left, err := m.lessor.Remaining(tr.id(d), now)
		return errorOr(err, left.String())
	case "overdue":
		n, oldest := m.lessor.Overdue(now)
		return fmt.Sprintf("%d, the oldest for %v", n, oldest)
	case "leaderships":
		var lines []string
		for _, r := range m.lessor.Leaderships() {
			lines = append(lines, fmt.Sprintf("from %v, applied at %v", r.Start, r.Applied))
		}
		return strings.Join(lines, "\n")
	case "show":
		var lines []string
		for _, lease := range m.lessor.Leases() {
			lines = append(lines, m.show(lease))
		}
		if len(lines) == 0 {
			return "no leases"
		}
		return strings.Join(lines, "\n")
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (m *member) show(lease Lease) string {
	line := fmt.Sprintf("%s: TTL %v", lease.Ref(), lease.TTL)
	if lease.Checkpointed {
		line += fmt.Sprintf(", checkpointed with %v", lease.Remaining)
	} else {
		line += fmt.Sprintf(", cleared at %v", lease.Cleared)
	}
	if lease.Items > 0 {
		line += fmt.Sprintf(", %d items", lease.Items)
	}
	if m.lessor.Primary() {
		line += fmt.Sprintf(", ends after %v", lease.Deadline)
	}
	if lease.Clearing {
		line += ", clearing"
	}
	if lease.Ending {
		line += ", expiring"
	}
	return line
}

func (tr *conversation) on(t *testing.T, d *datadriven.TestData, other *member) *member {
	var name string
	transcript.Scan(t, d, "on", &name)
	if name == "" {
		return other
	}
	return tr.member(name)
}

func (tr *conversation) id(d *datadriven.TestData) ID {
	id, err := strconv.ParseInt(transcript.Word(d, 0), 10, 64)
	if err != nil {
		panic(err)
	}
	return ID(id)
}

func errorOr(err error, s string) string {
	if err != nil {
		return err.Error()
	}
	return s
}
