package conformance

import (
	"testing"
)

func TestEtcdctlWatch(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a/1", "x") // 2
		one := s.startCtl("watch", "a/1", "--rev", "3")
		prefix := s.startCtl("watch", "a/", "--prefix", "--rev", "1")
		previous := s.startCtl("watch", "a/", "--prefix", "--rev", "2", "--prev-kv")
		interval := s.startCtl("watch", "a/2", "b", "--rev", "1")
		st.put("a/1", "y") // 3
		st.put("a/2", "z") // 4
		st.delete("a/1")   // 5
		one.want("one key", "PUT", "a/1", "y", "DELETE", "a/1", "")
		prefix.want("prefix", "PUT", "a/1", "x", "PUT", "a/1", "y", "PUT", "a/2", "z", "DELETE", "a/1", "")
		previous.want("previous values", "PUT", "a/1", "x", "PUT", "a/1", "x", "a/1", "y", "PUT", "a/2", "z", "DELETE", "a/1", "y", "a/1", "")
		interval.want("interval", "PUT", "a/2", "z")
	})
}

func TestEtcdctlWatchFromNow(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "before")
		w := s.startCtl("watch", "a")
		// etcdctl does not say when it has begun to watch, so write until it sees
		// something; what it sees then is the newest.
		eventually(t, waitLimit, "the first event", func() bool {
			st.put("a", "now")
			return len(w.lines) > 0
		})
		st.delete("a")
		for {
			if kind := w.line(); kind == "DELETE" {
				w.want("end", "a", "")
				return
			} else if kind != "PUT" {
				t.Fatalf("unexpected line %q", kind)
			}
			w.want("a put", "a", "now")
		}
	})
}

func TestEtcdctlWatchJSON(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		st.put("a", "2")
		st.delete("a")
		w := s.startCtl("watch", "a", "--rev", "2", "--prev-kv", "-w", "json")
		w.want("history in one response", `{"Header":`+jsonHeader("4")+`,"Events":[`+
			`{"kv":{"key":"YQ==","create_revision":2,"mod_revision":2,"version":1,"value":"MQ=="}},`+
			`{"kv":{"key":"YQ==","create_revision":2,"mod_revision":3,"version":2,"value":"Mg=="},"prev_kv":{"key":"YQ==","create_revision":2,"mod_revision":2,"version":1,"value":"MQ=="}},`+
			`{"type":1,"kv":{"key":"YQ==","mod_revision":4},"prev_kv":{"key":"YQ==","create_revision":2,"mod_revision":3,"version":2,"value":"Mg=="}}],`+
			`"CompactRevision":0,"Canceled":false,"Created":false,"CancelReason":""}`)
	})
}

func TestEtcdctlReportsARefusedWatch(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		w := s.startCtl("watch", "b", "a", "--rev", "1")
		w.wantEnd(5)
		wantEqual(t, "message", w.lastError(), "Error: watch is canceled by the server")
	})
}
