//go:build unix

package accident

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/server"
)

// The accounts hold 100. A adds 10, B adds 20, and a balance of 110 in the end means that B's deposit is gone.
const (
	opening            = 100
	depositA, depositB = 10, 20
)

// The first holder's TTL is short, because it has to pass. The second one's is long: it must not lose the name
// only because this machine is busy.
const (
	ttlA = time.Second
	ttlB = 30 * time.Second
)

func TestGuardsStopAPausedHolder(t *testing.T) {
	addr := endpointstest.Start(t, server.Config{}).Addr
	for _, scheme := range []string{"etcd", "leasekeeper"} {
		t.Run(scheme, func(t *testing.T) { playAccident(t, scheme+"://"+addr+"/", openBank(t, "")) })
	}
}

// The rows are in the store of the leases. They are written with each guard, behind a gate, and without.
func TestGuardsStopAPausedHolderInADatabase(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		store := "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
		playAccident(t, store, openBank(t, store))
	})
	t.Run("postgres", func(t *testing.T) {
		store := databases.PostgreSQL(t).Database(t)
		playAccident(t, store, openBank(t, store))
	})
}

// playAccident stops holder A between its check of the lease and its write, and continues it once B has written.
func playAccident(t *testing.T, store string, b bank) {
	accounts, closeAll, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()

	holderA := startHolder(t, orders{Store: store, TTL: ttlA, Bank: b, Deposit: depositA})
	aboutTo := holderA.says()
	holderA.stop()

	holderB := startHolder(t, orders{Store: store, TTL: ttlB, Bank: b, Deposit: depositB})
	succeeded := holderB.says()
	if succeeded.Token <= aboutTo.Token {
		t.Fatalf("B was given token %d after A's %d", succeeded.Token, aboutTo.Token)
	}
	holderB.proceed()
	wroteB := holderB.says()

	holderA.mustBeSilent()
	holderA.proceed() // the order waits for it, so that it writes first when it continues
	holderA.signal(syscall.SIGCONT)
	wroteA := holderA.says()

	for i, a := range accounts {
		if aboutTo.Found[i] != opening || succeeded.Found[i] != opening {
			t.Errorf("%v: A found %d and B %d, want %d", a, aboutTo.Found[i], succeeded.Found[i], opening)
		}
		if err := wroteB.Writes[i].err(); err != nil {
			t.Errorf("%v: B's write: %v", a, err)
		}
		balance, err := a.balance(t.Context())
		if err != nil {
			t.Fatalf("%v: %v", a, err)
		}
		judge(t, a, balance, wroteA.Writes[i], aboutTo, succeeded)
	}
	knowsItLost(t, wroteA)
	if wroteB.Check != "" {
		t.Errorf("B's lease, when it has written: %s", wroteB.Check)
	}

	holderA.proceed()
	if said := holderA.says(); said.Released == "" {
		t.Error("the store has confirmed to A the release of what it had lost")
	}
	holderA.ends()
	holderB.proceed()
	if said := holderB.says(); said.Released != "" {
		t.Errorf("whatever A does late must leave B's lease alone; its release: %s", said.Released)
	}
	holderB.ends()
}

// judge checks one account after A's late write.
func judge(t *testing.T, a account, balance int, late outcome, aboutTo, succeeded report) {
	t.Helper()
	if !a.guarded {
		// This is the accident. If it does not happen here, the guards had nothing to refuse.
		if late.err() != nil || balance != opening+depositA {
			t.Errorf("%v: A's late write: %v; the balance is %d, and should be the corrupt %d", a, late.err(), balance, opening+depositA)
		}
		return
	}
	if balance != opening+depositB {
		t.Errorf("%v: the balance is %d, want %d as B wrote it", a, balance, opening+depositB)
	}
	if a.gated != nil {
		if !late.Lost {
			t.Errorf("%v: A's late write: %v, want it refused because the lease is lost", a, late.err())
		}
	} else if late.Stale == nil {
		t.Errorf("%v: A's late write: %v, want it refused as stale", a, late.err())
	} else if late.Stale.Token != aboutTo.Token || late.Stale.Highest != succeeded.Token {
		t.Errorf("%v: refused token %d for %d, want %d for %d", a, late.Stale.Token, late.Stale.Highest, aboutTo.Token, succeeded.Token)
	}
}

// knowsItLost checks that A knew right after its write that its lease was lost.
func knowsItLost(t *testing.T, a report) {
	t.Helper()
	if !a.Lost {
		t.Errorf("A's lease, when it has written: Check says %q, want ErrLost", a.Check)
	}
	if a.Remaining > 0 {
		t.Errorf("A's lease lasts %v more, when it has written", a.Remaining)
	}
	if !a.Ended || !a.CauseLost {
		t.Errorf("A's context: ended %v, cause %q, want it to end with ErrLost", a.Ended, a.Cause)
	}
}

// openBank sets up the accounts, with rows in the store if it is a database.
func openBank(t *testing.T, database string) bank {
	t.Helper()
	web := httptest.NewServer(serveAccounts(opening))
	t.Cleanup(web.Close)
	b := bank{Dir: t.TempDir(), Web: web.URL, Database: database}
	if err := b.found(opening); err != nil {
		t.Fatal(err)
	}
	return b
}

// holder is a holder in a process of its own.
type holder struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	said   chan report // the reports of the holder; closed at its end
	stderr bytes.Buffer
}

func startHolder(t *testing.T, o orders) *holder {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const lines = 8 // more than it reports, so that it can end without a reader
	h := &holder{t: t, cmd: exec.Command(self), said: make(chan report, lines)}
	h.cmd.Env = append(os.Environ(), ordersVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	h.cmd.Stderr = &h.stderr
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
		for decoder := json.NewDecoder(out); ; {
			var r report
			if decoder.Decode(&r) != nil {
				return
			}
			h.said <- r
		}
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill() // also ends one that is stopped; it usually has ended
		for range h.said {
		}
		_ = h.cmd.Wait()
		if t.Failed() && h.stderr.Len() > 0 {
			t.Logf("a holder wrote: %s", h.stderr.Bytes())
		}
	})
	return h
}

// says returns the next report of the holder.
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

// mustBeSilent checks that the holder has sent no more reports.
func (h *holder) mustBeSilent() {
	h.t.Helper()
	select {
	case r := <-h.said:
		h.t.Fatalf("a holder that is stopped says %+v", r)
	default:
	}
}

// proceed orders the holder to continue.
func (h *holder) proceed() {
	h.t.Helper()
	if _, err := h.in.Write([]byte{'\n'}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *holder) signal(s syscall.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
}

// stop stops the process, and returns once the kernel reports it as stopped.
func (h *holder) stop() {
	h.t.Helper()
	h.signal(syscall.SIGSTOP)
	for limit := time.Now().Add(patient); ; time.Sleep(time.Millisecond) {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(h.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			h.t.Fatal(err)
		case pid != 0 && status.Stopped():
			return
		case pid != 0:
			h.t.Fatalf("the holder has ended: exit code %d, signal %v", status.ExitStatus(), status.Signal())
		}
		if time.Now().After(limit) {
			h.t.Fatal("the holder cannot be stopped")
		}
	}
}

// ends waits for the holder's end, which must be without an error.
func (h *holder) ends() {
	h.t.Helper()
	select {
	case r, ok := <-h.said:
		if ok {
			h.t.Fatalf("the holder has one thing more to say: %+v", r)
		}
	case <-time.After(patient):
		h.t.Fatal("the holder does not end")
	}
	if err := h.cmd.Wait(); err != nil {
		h.t.Fatalf("the holder: %v\n%s", err, h.stderr.Bytes())
	}
}
