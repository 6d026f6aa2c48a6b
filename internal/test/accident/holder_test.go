//go:build unix

package accident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/etcd"
	_ "github.com/leasekeeper/leasekeeper/backend/remote"
)

const (
	name    = "jobs/x"
	patient = 20 * time.Second // bounds each wait of the parent
)

// ordersVariable makes the test binary act as a holder.
const ordersVariable = "ACCIDENT_ORDERS"

// orders tell a holder what to do.
type orders struct {
	Store   string // a URL
	TTL     time.Duration
	Bank    bank
	Deposit int // added to each account
}

// report is a line on a holder's standard output. A holder sends one before it writes, one after, and one before it ends.
type report struct {
	Token     leasekeeper.Token
	Found     []int     // the balances that it has read
	Writes    []outcome // of all accounts in their order
	Check     string    // what the lease's Check says; empty if it is held
	Lost      bool      // that is ErrLost
	Remaining time.Duration
	Ended     bool   // the lease's context
	Cause     string // why
	CauseLost bool   // that is ErrLost
	Released  string // what became of the release; empty if it was confirmed
}

func TestMain(m *testing.M) {
	text, isHolder := os.LookupEnv(ordersVariable)
	if !isHolder {
		goleak.VerifyTestMain(m)
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.hold(os.Stdin, json.NewEncoder(os.Stdout))
	}
	if err == nil {
		err = goleak.Find() // however long it stood still, it leaves nothing behind
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold does what is ordered. It waits for a byte from the parent where the report says so.
func (o orders) hold(in io.Reader, out *json.Encoder) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patient)
	defer cancel()
	accounts, closeAll, err := o.Bank.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	k, err := leasekeeper.Open(ctx, o.Store, leasekeeper.WithTTL(o.TTL))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Shutdown(ctx)) }()

	lease, found, err := begin(ctx, k, accounts)
	if err != nil {
		return err
	}
	token := lease.Token()
	if err := out.Encode(report{Token: token, Found: found}); err != nil {
		return err
	}

	// Here, after the last look at the lease and before the write, it may be stopped.
	if err := proceed(in); err != nil {
		return err
	}
	var writes []outcome
	for i, a := range accounts {
		writes = append(writes, outcomeOf(a.put(ctx, lease, found[i]+o.Deposit)))
	}

	// It need not wait for anything to know whether it still holds the name.
	check, remaining := lease.Check(), lease.Remaining()
	said := report{Token: token, Writes: writes, Check: outcomeOf(check).Failure, Lost: errors.Is(check, leasekeeper.ErrLost), Remaining: remaining}
	if check != nil {
		select {
		case <-lease.Context().Done():
			cause := context.Cause(lease.Context())
			said.Ended, said.Cause, said.CauseLost = true, cause.Error(), errors.Is(cause, leasekeeper.ErrLost)
		case <-time.After(patient):
		}
	}
	if err := out.Encode(said); err != nil {
		return err
	}
	if err := proceed(in); err != nil {
		return err
	}
	return out.Encode(report{Token: token, Released: outcomeOf(lease.Release(ctx)).Failure})
}

// begin acquires the name and reads the accounts. What it reads is worth nothing if the lease was lost
// meanwhile, as it can be on a machine with too much to do; then it begins again.
func begin(ctx context.Context, k *leasekeeper.Keeper, accounts []account) (*leasekeeper.Lease, []int, error) {
	for {
		lease, err := k.Acquire(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		var found []int
		for _, a := range accounts {
			if err := a.advance(ctx, lease.Token()); err != nil {
				return nil, nil, fmt.Errorf("%v: %w", a, err)
			}
			balance, err := a.balance(ctx)
			if err != nil {
				return nil, nil, fmt.Errorf("%v: %w", a, err)
			}
			found = append(found, balance)
		}
		if lease.Check() == nil {
			return lease, found, nil
		}
	}
}

// proceed waits until the parent lets the holder go on.
func proceed(in io.Reader) error {
	_, err := io.ReadFull(in, make([]byte, 1))
	return err
}
