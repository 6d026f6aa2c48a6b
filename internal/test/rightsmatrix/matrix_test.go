package rightsmatrix

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

var rewrite = flag.Bool("rewrite", false, "write what the server answers into testdata/matrix.txt")

// proof is a way in which callers prove who they are.
type proof struct {
	name    string
	columns []string // of the table
	// certificate and token are those of a column's caller, "" for none.
	certificate, token func(column string) string
}

// proofsOf returns the proofs of a cluster. With certificates, every client needs one. A token goes before it: users with a
// token have the certificate of somebody with other rights.
func (w *world) proofsOf() []proof {
	token := func(column string) string {
		if column == "forged" {
			return "forged.1"
		}
		return w.tokens[column]
	}
	none := func(string) string { return "" }
	if w.ca == nil {
		return []proof{{"simple token", []string{"nobody", "forged", "bare", "half", "root"}, none, token}}
	}
	return []proof{
		{"JSON Web Token", []string{"forged", "bare", "half", "root"}, func(column string) string {
			if column == "root" {
				return "stranger"
			}
			return "root"
		}, token},
		{"certificate", []string{"stranger", "bare", "half", "root"}, func(column string) string { return column }, none},
	}
}

// attempt is a request of the table with its things, as one caller sends it.
type attempt struct {
	row     *row
	column  string
	proof   string
	through string
	path    string // of a gateway; "" for gRPC
	request proto.Message
	client  *client
	token   string
}

func (a *attempt) String() string {
	over := "gRPC"
	if a.path != "" {
		over = a.path
	}
	return fmt.Sprintf("%s:%d: %s {%s} as %s by %s, %s through the %s", matrixFile, a.row.line, a.row.method, a.row.request, a.column, a.proof, over, a.through)
}

// attempts makes all attempts of the columns, and the things that they need.
func (w *world) attempts(t *testing.T, rows []*row, methods map[string]*method, only ...string) (all []*attempt) {
	t.Helper()
	clients := make(map[string]*client)
	for _, p := range w.proofsOf() {
		for _, through := range slices.Sorted(maps.Keys(w.through)) {
			for _, column := range p.columns {
				if len(only) > 0 && !slices.Contains(only, column) {
					continue
				}
				key := through + p.certificate(column)
				if clients[key] == nil {
					clients[key] = w.dial(w.through[through], p.certificate(column))
				}
				for _, r := range rows {
					if r.want[column] == "-" {
						continue // it would change the answers to others
					}
					for _, path := range methods[r.method].tried(column) {
						all = append(all, &attempt{row: r, column: column, proof: p.name, through: through, path: path, client: clients[key], token: p.token(column)})
					}
				}
			}
		}
	}
	w.each(t, all, func(a *attempt) error {
		filled, err := w.fill(a.row.request)
		if err == nil {
			a.request = newMessage(methods[a.row.method].desc.Input())
			err = prototext.Unmarshal([]byte(strings.TrimPrefix(filled, "-")), a.request)
		}
		return err
	})
	return all
}

// workers is the number of requests under way besides those to alone.
const workers = 8

// alone are services whose methods work on the whole server. Their requests come one by one.
var alone = []string{"/etcdserverpb.Maintenance/", "/leasekeeper.v1.Members/", "/etcdserverpb.Cluster/"}

// each does something with all attempts.
func (w *world) each(t *testing.T, all []*attempt, do func(*attempt) error) {
	t.Helper()
	queue, single := make(chan *attempt, len(all)), make(chan *attempt, len(all))
	for _, a := range all {
		if slices.ContainsFunc(alone, func(prefix string) bool { return strings.HasPrefix(a.row.method, prefix) }) {
			single <- a
		} else {
			queue <- a
		}
	}
	close(queue)
	close(single)
	var wait sync.WaitGroup
	for i := range workers + 1 {
		from := queue
		if i == 0 {
			from = single
		}
		wait.Go(func() {
			for a := range from {
				if err := do(a); err != nil {
					t.Errorf("%v: %v", a, err)
				}
			}
		})
	}
	wait.Wait()
}

// retries is how often a request is repeated that fails because the cluster has no leader for a moment.
const retries = 10

// send makes the request of an attempt.
func (w *world) send(a *attempt, methods map[string]*method) (got outcome) {
	m := methods[a.row.method]
	for range retries {
		if a.path == "" {
			got = a.client.overGRPC(w.t.Context(), m, a.token, a.request)
		} else {
			got = a.client.overJSON(w.t.Context(), m, a.path, a.token, a.request)
		}
		if got != "Unavailable" && got != "DeadlineExceeded" {
			break
		}
	}
	return got
}

// judge sends all attempts, and compares their outcomes with the table.
func (w *world) judge(t *testing.T, all []*attempt, methods map[string]*method, withdrawn bool) {
	t.Helper()
	var mu sync.Mutex
	w.each(t, all, func(a *attempt) error {
		got := w.send(a, methods)
		mu.Lock()
		defer mu.Unlock()
		if *rewrite {
			a.row.learn(a.column, withdrawn, got)
		}
		if want := a.row.cell(a.column, withdrawn); got != want {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
}

// learn notes the first outcome of a cell.
func (r *row) learn(column string, withdrawn bool, got outcome) {
	switch {
	case withdrawn && !r.learned["after"]:
		r.after, r.learned["after"] = got, true
	case !withdrawn && !r.learned[column]:
		r.want[column], r.learned[column] = got, true
	}
}

// TestEveryCallAsEveryUser makes each request of the table as each caller, and then as a user that has lost its role.
func TestEveryCallAsEveryUser(t *testing.T) {
	rows := readTable(t)
	for _, certificates := range []bool{false, true} {
		w := newWorld(t, certificates)
		began := time.Now()
		methods := methodsOf(t, w.leader.conn)
		known := make(map[string]bool)
		for _, r := range rows {
			known[r.method] = true
			if methods[r.method] == nil {
				t.Fatalf("%s:%d: the server has no %s", matrixFile, r.line, r.method)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(methods)) {
			if !known[name] {
				t.Errorf("%s has no request of %s: add one, with what each caller receives", matrixFile, name)
			}
		}
		all := w.attempts(t, rows, methods)
		w.judge(t, all, methods, false)
		half := w.attempts(t, rows, methods, "half")
		w.revokeHalf()
		w.login()
		for _, a := range half {
			if a.token != "" {
				a.token = w.tokens["half"]
			}
		}
		w.judge(t, half, methods, true)
		w.disable(t, methods)
		t.Logf("%d requests in %v", len(all)+len(half), time.Since(began))
	}
	if *rewrite {
		writeTable(t, rows)
	}
}

// disable turns users off as root, which the table leaves out, and then does as nobody what only root might.
func (w *world) disable(t *testing.T, methods map[string]*method) {
	t.Helper()
	disable, read := "/etcdserverpb.Auth/AuthDisable", "/etcdserverpb.KV/Range"
	for _, a := range []*attempt{
		{
			row: &row{method: disable}, path: methods[disable].paths[0], request: &pb.AuthDisableRequest{},
			client: w.dial(w.through["follower"], "root"), token: w.tokens["root"],
		},
		{row: &row{method: read}, request: &pb.RangeRequest{Key: []byte("other/there")}, client: w.leader},
	} {
		if got := w.send(a, methods); got != "OK" {
			t.Errorf("%s: got %s", a.row.method, got)
		}
	}
}
