package keyspace

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
)

// TestTranscripts runs testdata, which is the readable specification. (*conversation).run lists the commands. A key
// that ends in * means its prefix.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "", func(t *testing.T, _ string) transcript.Play {
		tr := &conversation{fixture: newFixture(t)}
		tr.newHub()
		return func(t *testing.T, d *datadriven.TestData) string {
			tr.test = t
			return tr.run(d)
		}
	})
}

type conversation struct {
	*fixture
	test    *testing.T
	hub     *Hub
	streams map[string]*Stream
}

func (tr *conversation) newHub() {
	tr.hub = NewHub(tr.store)
	tr.streams = make(map[string]*Stream)
}

func (tr *conversation) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "write":
		// One batch. Each line is a request; the lines between { and } are one request, those between txn and } a
		// transaction, see parseTxn.
		return tr.writeLines(strings.Split(d.Input, "\n"))
	case "grant":
		var id int64
		d.ScanArgs(tr.test, "lease", &id)
		tr.grant(id)
		return ""
	case "bindings":
		return tr.leases.String()
	case "range":
		return tr.rangeLines(d)
	case "reopen":
		for _, st := range tr.streams {
			st.Close()
		}
		tr.reopen()
		tr.newHub()
		return fmt.Sprintf("revision %d, compact %d, pending %v, bindings %s",
			tr.store.Revision(), tr.store.CompactRevision(), tr.store.Pending(), tr.leases)
	case "dump":
		return tr.dump(d.CmdArgs[0].Key)
	case "stream":
		return tr.handleStream(d)
	default:
		return tr.onStream(d)
	}
}

func (tr *conversation) writeLines(lines []string) string {
	var out strings.Builder
	var changes Changes
	tr.write(func(w *Writer) {
		for i := 0; i < len(lines); i++ {
			if lines[i] == "txn" {
				i = tr.txnLines(w, &out, lines, i+1)
				continue
			}
			if lines[i] != "{" {
				tr.runLine(w, &out, lines[i])
				continue
			}
			err := w.Group(func() error {
				for i++; lines[i] != "}"; i++ {
					tr.runLine(w, &out, "  "+lines[i])
				}
				return nil
			})
			fmt.Fprintf(&out, "}: %s\n", orText(err, "ok"))
		}
		changes = w.Changes()
	})
	tr.hub.Publish(changes)
	return out.String()
}

// runLine executes one request: words, of which the first is its name.
func (tr *conversation) runLine(w *Writer, out *strings.Builder, line string) {
	args := parse(line)
	switch args.words[0] {
	case "put":
		req := PutRequest{
			Key: args.key(1), Value: args.value(2), Lease: args.number("lease"), PrevKV: args.has("prev"),
			IgnoreValue: args.has("ignore-value"), IgnoreLease: args.has("ignore-lease"),
		}
		res, err := w.Put(req)
		fmt.Fprintf(out, "%s: %s\n", line, orText(err, "revision %d%s", res.Revision, prevText(res.Prev)))
	case "del":
		key, end := keysOf(args.word(1))
		res, err := w.DeleteRange(DeleteRequest{Key: key, End: end, PrevKV: args.has("prev")})
		fmt.Fprintf(out, "%s: %s\n", line, orText(err, "revision %d, deleted %d", res.Revision, res.Deleted))
		for _, kv := range res.Prev {
			fmt.Fprintf(out, "  was %s\n", kvText(kv))
		}
	case "end":
		rev := tr.end(w, args.number("lease"))
		fmt.Fprintf(out, "%s: %s\n", line, orText(w.Err(), "revision %d", rev))
	case "sweep":
		more, err := w.Sweep(int(args.number("keys")))
		fmt.Fprintf(out, "%s: %s\n", line, orText(err, "more %v", more))
	case "trim":
		more, err := w.Trim(int(args.number("keys")))
		fmt.Fprintf(out, "%s: %s\n", line, orText(err, "more %v", more))
	case "compact":
		fmt.Fprintf(out, "%s: %s\n", line, orText(w.Compact(args.number("rev")), "ok"))
	case "range":
		key, end := keysOf(args.word(1))
		res, err := w.Range(RangeRequest{Key: key, End: end, Revision: args.number("rev")})
		fmt.Fprintf(out, "%s: %s\n", line, rangeText(res, err))
	default:
		tr.t.Fatalf("no such request: %s", line)
	}
}

func (tr *conversation) rangeLines(d *datadriven.TestData) string {
	var out strings.Builder
	for line := range strings.SplitSeq(d.Input, "\n") {
		args := parse(line)
		key, end := keysOf(args.word(0))
		res, err := tr.store.Range(context.Background(), RangeRequest{
			Key: key, End: end, Limit: args.number("limit"), Revision: args.number("rev"),
			SortOrder:  SortOrder(args.number("order")),
			SortTarget: SortTarget(args.number("by")),
			KeysOnly:   args.has("keys-only"), CountOnly: args.has("count-only"),
			MinModRevision: args.number("min-mod"), MaxModRevision: args.number("max-mod"),
			MinCreateRevision: args.number("min-create"), MaxCreateRevision: args.number("max-create"),
		})
		fmt.Fprintf(&out, "%s: %s\n", line, rangeText(res, err))
	}
	return out.String()
}

// handleStream opens a stream: stream name [events=n] [fragment=n].
func (tr *conversation) handleStream(d *datadriven.TestData) string {
	var limits StreamLimits
	d.MaybeScanArgs(tr.test, "events", &limits.Events)
	d.MaybeScanArgs(tr.test, "fragment", &limits.FragmentBytes)
	tr.streams[d.CmdArgs[0].Key] = tr.hub.NewStream(limits)
	return ""
}

// onStream runs a command on the stream that its first word names.
func (tr *conversation) onStream(d *datadriven.TestData) string {
	st := tr.streams[d.CmdArgs[0].Key]
	if st == nil {
		tr.t.Fatalf("no stream %s", d.CmdArgs[0].Key)
	}
	args := parse(d.Input)
	switch d.Cmd {
	case "watch":
		key, end := keysOf(args.word(0))
		id, err := st.Watch(WatchRequest{
			ID: args.number("id"), Key: key, End: end, StartRevision: args.number("rev"), PrevKV: args.has("prev"),
			NoPut: args.has("no-put"), NoDelete: args.has("no-delete"),
			ProgressNotify: args.has("progress"), Fragment: args.has("fragment"),
		})
		return orText(err, "id %d", id)
	case "cancel":
		return fmt.Sprint(st.Cancel(args.number("id")))
	case "refuse":
		st.Refuse(d.Input)
	case "progress":
		st.RequestProgress()
	case "tick":
		st.Tick()
	case "close":
		st.Close()
	case "next":
		return drain(st)
	default:
		tr.t.Fatalf("no such command: %s", d.Cmd)
	}
	return ""
}

// drain prints all responses that a stream has now.
func drain(st *Stream) string {
	var out strings.Builder
	for !st.idle() {
		r, err := nextNow(st)
		if err != nil {
			return out.String() + err.Error()
		}
		if r != nil {
			out.WriteString(responseText(*r))
		}
	}
	return out.String()
}
