package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/queue"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
)

// TestTranscripts plays what is written in testdata: one ticket, and what successive looks show of its queue.
//
//	new                     a waiter that has seen nothing
//	see at=1s place=7 head=3 ahead=2 token=5 [free] [for=100ms] [patience=1s] [write=4] [slept=1s]
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play {
		var w queue.Waiter
		return func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				w = queue.Waiter{}
				return ""
			case "see":
				return show(w.See(view(t, d)))
			}
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			return ""
		}
	})
}

func view(t *testing.T, d *datadriven.TestData) (now clock.Instant, v queue.View) {
	duration := func(key string) (read time.Duration) {
		transcript.Scan(t, d, key, &read)
		return read
	}
	at := int64(duration("at"))
	now = clock.Instant{Raw: at - int64(duration("slept")), Boot: at}
	var token, write int
	d.MaybeScanArgs(t, "place", &v.Place)
	d.MaybeScanArgs(t, "head", &v.Head)
	d.MaybeScanArgs(t, "ahead", &v.Ahead)
	d.MaybeScanArgs(t, "token", &token)
	d.MaybeScanArgs(t, "write", &write)
	v.Token, v.Write[0], v.Free, v.For = uint64(token), byte(write), d.HasArg("free"), duration("for")
	v.Patience = duration("patience")
	return now, v
}

func show(s queue.Step) string {
	text := fmt.Sprintf("%v, look for %v, calm for %v", s.Act, s.Look, s.Calm)
	if s.Act == queue.Pass {
		text += fmt.Sprintf(", delete the ticket at %d", s.Head)
	}
	return text + "\n"
}
