package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"
)

var isolations = map[string]concurrency.Isolation{
	"serializable snapshot": concurrency.SerializableSnapshot,
	"serializable":          concurrency.Serializable,
	"repeatable reads":      concurrency.RepeatableReads,
	"read committed":        concurrency.ReadCommitted,
}

func TestSTMCommitsItsWritesAtOnce(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")    // 2
		st.put("gone", "1") // 3
		revision := int64(3)
		for name, level := range isolations {
			resp, err := concurrency.NewSTM(st.c, func(stm concurrency.STM) error {
				wantEqual(t, name+": read", stm.Get("a"), "1")
				wantEqual(t, name+": nothing there", stm.Get("none"), "")
				wantEqual(t, name+": no revision", stm.Rev("none"), 0)
				stm.Put("b", stm.Get("a")+"+")
				wantEqual(t, name+": its own write", stm.Get("b"), "1+")
				stm.Del("gone")
				wantEqual(t, name+": its own delete", stm.Get("gone"), "")
				return nil
			}, concurrency.WithIsolation(level), concurrency.WithPrefetch("a", "none"))
			wantOK(t, name, err)
			revision++
			wantEqual(t, name+": one write", resp.Header.Revision, revision)
			wantEqual(t, name+": written", string(st.get("b").Kvs[0].Value), "1+")
			wantEqual(t, name+": deleted", st.get("gone").Count, 0)
		}
		refused := errors.New("refused")
		_, err := concurrency.NewSTM(st.c, func(stm concurrency.STM) error {
			stm.Put("a", "9")
			return refused
		})
		wantIs(t, "what the function returns", err, refused)
		wantEqual(t, "is not carried out", st.revision(), revision)
	})
}

// Money goes round between accounts, and none is made or lost.
func TestSTMConflicts(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		const accounts, workers, transfers, start = 4, 4, 15, 100
		account := func(i int) string { return fmt.Sprint("account", i%accounts) }
		for i := range accounts {
			st.put(account(i), strconv.Itoa(start))
		}
		levels := []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads}
		var wg sync.WaitGroup
		for w := range workers {
			c := s.client()
			wg.Go(func() {
				for i := range transfers {
					_, err := concurrency.NewSTM(c, func(stm concurrency.STM) error {
						from, to := account(w+i), account(w+2*i+1)
						if from == to {
							return nil
						}
						a, _ := strconv.Atoi(stm.Get(from))
						b, _ := strconv.Atoi(stm.Get(to))
						stm.Put(from, strconv.Itoa(a-w-1))
						stm.Put(to, strconv.Itoa(b+w+1))
						return nil
					}, concurrency.WithIsolation(levels[i%len(levels)]), concurrency.WithAbortContext(s.t.Context()))
					if err != nil {
						t.Errorf("transfer: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		sum := 0
		for i := range accounts {
			n, err := strconv.Atoi(string(st.get(account(i)).Kvs[0].Value))
			wantOK(t, "balance", err)
			sum += n
		}
		wantEqual(t, "sum", sum, accounts*start)
	})
}

// All reads of a snapshot are of one revision, whatever is written meanwhile.
func TestSTMSnapshotReads(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1") // 2
		st.put("b", "1") // 3
		tries := 0
		_, err := concurrency.NewSTM(st.c, func(stm concurrency.STM) error {
			tries++
			a := stm.Get("a")
			if tries == 1 {
				st.put("a", "2")
				st.put("b", "2")
			}
			if b := stm.Get("b"); a != b {
				t.Errorf("read a=%s and b=%s, which never were at one time", a, b)
			}
			stm.Put("sum", a)
			return nil
		}, concurrency.WithIsolation(concurrency.SerializableSnapshot))
		wantOK(t, "stm", err)
		wantEqual(t, "tries", tries, 2)
		wantEqual(t, "written", string(st.get("sum").Kvs[0].Value), "2")
	})
}
