//go:build unix

package ferrettest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/mongofence"
)

// The accounts hold 100. A adds 10, B adds 20, and 110 in the end means that B's deposit is lost.
const (
	opening            = 100
	depositA, depositB = 10, 20

	patient = 20 * time.Second // bounds every wait
	ttlA    = 2 * time.Second  // must expire in the test
)

// ordersVariable is the environment variable that makes the test binary act as a holder.
const ordersVariable = "FERRETTEST_ORDERS"

// orders say what a holder has to do.
type orders struct {
	Store    string // a URL; empty if `leasekeeper run` holds the lease and has started it
	URI      string
	Database string
	Deposit  int
}

// report is a holder's message, one before it writes and one when it has written.
type report struct {
	Token   fence.Token
	Guarded string // the error of the write with the guard; empty if it was done
	Stale   bool   // that write was refused because of its older token
	Highest fence.Token
	Bare    string // the error of the write without guard and gate
	Gated   string // the error of the write in a transaction with the lease's gate
	Gone    bool   // that write was refused because the lease is lost
	Lost    bool   // the state of the lease after the writes
}

func TestMain(m *testing.M) {
	text, isHolder := os.LookupEnv(ordersVariable)
	if !isHolder {
		os.Exit(m.Run())
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.hold(os.Stdin, json.NewEncoder(os.Stdout))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ledger is three accounts: with the guard, without, and with the gate.
type ledger struct {
	guarded     mongofence.Field
	bare, gated *mongo.Collection
}

func ledgerIn(db *mongo.Database) ledger {
	return ledger{mongofence.Field{Collection: db.Collection("guarded")}, db.Collection("bare"), db.Collection("gated")}
}

func (l ledger) balances(ctx context.Context) (guarded, bare, gated int, err error) {
	read := func(c *mongo.Collection) (balance int) {
		var d struct{ Balance int }
		err = errors.Join(err, c.FindOne(ctx, bson.D{{Key: "_id", Value: "x"}}).Decode(&d))
		return d.Balance
	}
	return read(l.guarded.Collection), read(l.bare), read(l.gated), err
}

// writeGated writes in a transaction with the gate of a lease. Without a lease it writes without a gate.
func (l ledger) writeGated(ctx context.Context, lease *leasekeeper.Lease, balance int) error {
	write := func(ctx context.Context) error {
		_, err := l.gated.UpdateByID(ctx, "x", becomes(balance))
		return err
	}
	if lease == nil {
		return write(ctx)
	}
	_, err := transaction(ctx, l.gated.Database().Client(), func(ctx context.Context) error {
		if err := mongodb.Gate(ctx, lease); err != nil {
			return err
		}
		return write(ctx)
	})
	return err
}

func becomes(balance int) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: balance}}}}
}

// hold acquires the name if ordered, reads, and waits for a byte before it writes. It ends when its input ends.
func (o orders) hold(in io.Reader, out *json.Encoder) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patient)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(o.URI))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	accounts := ledgerIn(client.Database(o.Database))
	token, lease, err := o.acquire(ctx)
	if err != nil {
		return err
	}
	check := func() error { return nil }
	if lease != nil {
		check = lease.Check
	}
	// A new holder raises the guard's mark before it reads.
	if err := accounts.guarded.Advance(ctx, "x", token); err != nil {
		return err
	}
	guarded, bare, gated, err := accounts.balances(ctx)
	if err == nil {
		err = check()
	}
	if err == nil {
		err = out.Encode(report{Token: token})
	}
	if err != nil {
		return err
	}
	// The test may stop the process here, after its last check of the lease and before the write.
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		return err
	}
	said := report{Token: token}
	err = accounts.guarded.Update(ctx, "x", token, becomes(guarded+o.Deposit))
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		said.Stale, said.Highest = true, stale.Highest
	}
	said.Guarded = textOf(err)
	_, err = accounts.bare.UpdateByID(ctx, "x", becomes(bare+o.Deposit))
	said.Bare = textOf(err)
	err = accounts.writeGated(ctx, lease, gated+o.Deposit)
	said.Gated, said.Gone = textOf(err), errors.Is(err, leasekeeper.ErrLost)
	said.Lost = errors.Is(check(), leasekeeper.ErrLost)
	if err := out.Encode(said); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in) // until the parent has finished its checks
	return nil
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// acquire returns the token, and the lease unless `leasekeeper run` holds it.
func (o orders) acquire(ctx context.Context) (fence.Token, *leasekeeper.Lease, error) {
	if o.Store == "" {
		n, err := strconv.ParseUint(os.Getenv("LEASEKEEPER_TOKEN"), 10, 64)
		return fence.Token(n), nil, err
	}
	k, err := leasekeeper.Open(ctx, o.Store, leasekeeper.WithTTL(ttlA))
	if err != nil {
		return 0, nil, err
	}
	l, err := k.Acquire(ctx, "jobs/x")
	if err != nil {
		return 0, nil, err
	}
	return l.Token(), l, nil
}

// holder is a holder in a process of its own.
type holder struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan report // closed after the last report
}

// begin starts a holder: this binary, as an argument of another command if before is given.
func begin(t *testing.T, o orders, before ...string) *holder {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	words := append(before, self)
	h := &holder{t: t, cmd: exec.Command(words[0], words[1:]...), said: make(chan report, 4)} // has room for all its reports
	h.cmd.Env = append(os.Environ(), ordersVariable+"="+string(text))
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		h.in, err = h.cmd.StdinPipe()
	}
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.said)
		for decoder := json.NewDecoder(bufio.NewReader(out)); ; {
			var r report
			if decoder.Decode(&r) != nil {
				return
			}
			h.said <- r
		}
	}()
	t.Cleanup(func() {
		_ = h.in.Close()
		_ = h.cmd.Process.Signal(syscall.SIGTERM) // `run` ends its command, too
		_ = h.cmd.Process.Signal(syscall.SIGCONT)
		limit := time.AfterFunc(patient, func() { _ = h.cmd.Process.Kill() })
		defer limit.Stop()
		for range h.said {
		}
		_ = h.cmd.Wait()
	})
	return h
}

// says returns the holder's next report.
func (h *holder) says() report {
	h.t.Helper()
	select {
	case r, ok := <-h.said:
		if !ok {
			h.t.Fatal("the holder has ended early")
		}
		return r
	case <-time.After(patient):
		h.t.Fatal("the holder says nothing")
	}
	return report{}
}

func (h *holder) proceed() {
	h.t.Helper()
	if _, err := h.in.Write([]byte{'\n'}); err != nil {
		h.t.Fatal(err)
	}
}

// stop stops the process, and returns when the kernel reports it stopped.
func (h *holder) stop() {
	h.t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		h.t.Fatal(err)
	}
	var status syscall.WaitStatus
	for limit := time.Now().Add(patient); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		pid, err := syscall.Wait4(h.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if pid != 0 && status.Stopped() {
			return
		}
		if pid != 0 || err != nil && !errors.Is(err, syscall.EINTR) {
			h.t.Fatalf("the holder does not stand still: %v, %v", status, err)
		}
	}
	h.t.Fatal("the holder cannot be stopped")
}

// playAccident stops A, a program, between its check of the lease and its write. When B, which `leasekeeper
// run` has started, has replaced A and written, A continues.
func (c command) playAccident(t *testing.T, uri string, gates bool) {
	db := databaseOf(t, connect(t, uri))
	accounts := ledgerIn(db)
	for _, kind := range []*mongo.Collection{accounts.guarded.Collection, accounts.bare, accounts.gated} {
		if _, err := kind.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "x"}, {Key: "balance", Value: opening}}); err != nil {
			t.Fatal(err)
		}
	}
	a := begin(t, orders{Store: c.store, URI: uri, Database: db.Name(), Deposit: depositA})
	aboutTo := a.says()
	a.stop()
	b := begin(t, orders{URI: uri, Database: db.Name(), Deposit: depositB}, c.path, "run", "--store", c.store, "--ttl", "30s", "jobs/x", "--")
	succeeded := b.says()
	if succeeded.Token <= aboutTo.Token {
		t.Fatalf("B was given token %d after A's %d", succeeded.Token, aboutTo.Token)
	}
	b.proceed()
	if wrote := b.says(); wrote.Guarded != "" || wrote.Bare != "" || wrote.Gated != "" {
		t.Errorf("B's writes: %+v", wrote)
	}
	a.proceed() // the byte is there when A continues, so nothing comes before the write
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	late := a.says()
	if !late.Stale || late.Highest != succeeded.Token || !late.Lost {
		t.Errorf("A, late: %+v; want that it is refused for %d, and that its lease is lost", late, succeeded.Token)
	}
	guarded, bare, gated, err := accounts.balances(t.Context())
	if err != nil || guarded != opening+depositB {
		t.Errorf("with the guard there are %d, %v; want %d as B wrote it", guarded, err, opening+depositB)
	}
	// Without transactions the gate returns an error, and nothing is written either.
	if gated != opening+depositB || late.Gated == "" || gates && !late.Gone {
		t.Errorf("behind the gate there are %d (%s); want %d as B wrote it", gated, late.Gated, opening+depositB)
	}
	// This is the accident. If it had not happened here, the guard would have had nothing to do.
	if late.Bare != "" || bare != opening+depositA {
		t.Errorf("without the guard there are %d (%s); it should be the corrupt %d", bare, late.Bare, opening+depositA)
	}
	if code, stdout, stderr := c.run(t, "show", "--store", "STORE", "jobs/x"); code != 0 || !strings.Contains(stdout, "\ntoken") {
		t.Errorf("B holds it no more: %s%s", stdout, stderr)
	}
}
