package patroni

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// callLimit bounds one connection or statement.
const callLimit = 5 * time.Second

// url returns the URL of the database at some nodes. Of several, a client connects to the primary.
func url(nodes ...*node) string {
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, n.postgres)
	}
	more := ""
	if len(nodes) > 1 {
		more = "&target_session_attrs=read-write"
	}
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable&connect_timeout=5%s", password, strings.Join(hosts, ","), more)
}

// query runs a statement that returns one value, over a connection of its own.
func query[T any](n *node, statement string) (value T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url(n))
	if err != nil {
		return value, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, statement).Scan(&value)
	return value, err
}

// writer inserts one row after the other at the primary, also at the next one, and remembers the acknowledged rows.
type writer struct {
	nodes []*node
	stop  context.CancelFunc
	done  chan struct{}

	mu           sync.Mutex
	acknowledged []int64
	failures     []string
}

// startWriter creates the table and starts a writer, which begins after the rows of an earlier one.
func startWriter(ctx context.Context, nodes []*node, earlier []int64) *writer {
	ctx, stop := context.WithCancel(ctx)
	w := &writer{nodes: nodes, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		var conn *pgx.Conn
		row := int64(1)
		if len(earlier) > 0 {
			row += slices.Max(earlier) + 1000 // more than the attempts that failed since
		}
		for ; ctx.Err() == nil; row++ {
			conn = w.insert(ctx, conn, row)
		}
		if conn != nil {
			conn.Close(context.Background())
		}
	}()
	return w
}

// insert tries one row and returns the connection for the next one, or nil after an error.
func (w *writer) insert(ctx context.Context, conn *pgx.Conn, row int64) *pgx.Conn {
	attempt, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := error(nil)
	if conn == nil {
		if conn, err = pgx.Connect(attempt, url(w.nodes...)); err == nil {
			_, err = conn.Exec(attempt, "CREATE TABLE IF NOT EXISTS acknowledged (row bigint PRIMARY KEY)")
		}
	}
	if err == nil {
		_, err = conn.Exec(attempt, "INSERT INTO acknowledged VALUES ($1)", row)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.acknowledged = append(w.acknowledged, row)
		pause(ctx, 20*time.Millisecond) // load, not a flood
		return conn
	}
	if ctx.Err() == nil {
		w.failures = append(w.failures, err.Error())
	}
	if conn != nil {
		conn.Close(attempt)
	}
	pause(ctx, 100*time.Millisecond)
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// end stops the writer and returns what was acknowledged.
func (w *writer) end() []int64 {
	w.stop()
	<-w.done
	return w.acknowledged
}

// count returns how many rows were acknowledged and the errors so far.
func (w *writer) count() (acknowledged int, failures []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged), append([]string(nil), w.failures...)
}

// witness observes the primary all the time over one session, and notes each change. A restart of PostgreSQL ends the
// session.
type witness struct {
	stop    context.CancelFunc
	done    chan struct{}
	samples int
	changes []string
}

func startWitness(ctx context.Context, primary *node) (*witness, error) {
	ctx, stop := context.WithCancel(ctx)
	conn, err := pgx.Connect(ctx, url(primary))
	if err != nil {
		stop()
		return nil, err
	}
	w := &witness{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer conn.Close(context.Background())
		first := ""
		for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
			now, err := state(ctx, conn)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				w.changes = append(w.changes, err.Error())
				return
			}
			if w.samples++; w.samples == 1 {
				first = now
			}
			if now != first {
				w.changes = append(w.changes, fmt.Sprintf("%s became %s", first, now))
				return
			}
		}
	}()
	return w, nil
}

// state returns the role and the timeline of a server.
func state(ctx context.Context, conn *pgx.Conn) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT CASE WHEN pg_is_in_recovery() THEN 'in recovery'
		ELSE 'primary on timeline ' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END`).Scan(&text)
	return text, err
}

// end stops the witness. It returns the number of observations, and the changes, of which a healthy primary has none.
func (w *witness) end() (samples int, changes []string) {
	w.stop()
	<-w.done
	return w.samples, w.changes
}
