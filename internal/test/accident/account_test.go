//go:build unix

package accident

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/filefence"
)

// account is a resource that holds a number. Each kind exists twice, with its guard and without.
type account struct {
	kind    string
	guarded bool
	// advance raises the guard's mark to a new holder's token, before the holder reads.
	advance func(ctx context.Context, t fence.Token) error
	balance func(ctx context.Context) (int, error)
	write   func(ctx context.Context, t fence.Token, balance int) error
	// gated, unless it is nil, is used instead of write. The lease itself is the guard.
	gated func(ctx context.Context, l *leasekeeper.Lease, balance int) error
}

// put writes as the holder of the lease.
func (a account) put(ctx context.Context, l *leasekeeper.Lease, balance int) error {
	if a.gated != nil {
		return a.gated(ctx, l, balance)
	}
	return a.write(ctx, l.Token(), balance)
}

func (a account) String() string {
	if a.guarded {
		return a.kind
	}
	return a.kind + " without its guard"
}

// noGuard is the advance of an account without a guard.
func noGuard(context.Context, fence.Token) error { return nil }

// bank says where the accounts are. The holders receive it with their orders.
type bank struct {
	Dir string // of the file and of the database, if that is a file
	Web string // the URL at which the parent serves the others
	// Database is the URL of the store if it is a database, and then has the rows too; "" otherwise.
	Database string
}

// open opens all accounts, in the parent and in each holder.
func (b bank) open() (accounts []account, closeAll func() error, err error) {
	d, err := b.database()
	if err != nil {
		return nil, nil, err
	}
	web := new(http.Transport)
	for _, guarded := range []bool{true, false} {
		accounts = append(accounts, b.inFile(guarded), d.inColumn(guarded), d.inTransaction(guarded), b.overHTTP(web, guarded), b.inMemory(web, guarded))
	}
	if d.gate != nil {
		accounts = append(accounts, d.behindGate())
	}
	return accounts, func() error {
		web.CloseIdleConnections()
		return d.Close()
	}, nil
}

// spell names an account, with or without a guard, in directories, tables and paths.
func spell(kind string, guarded bool) string {
	if guarded {
		return kind + "-guarded"
	}
	return kind + "-bare"
}

func (b bank) inFile(guarded bool) account {
	path := filepath.Join(b.Dir, spell("file", guarded))
	a := account{kind: "a file", guarded: guarded, advance: noGuard}
	a.balance = func(context.Context) (int, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(string(text))
	}
	a.write = func(_ context.Context, _ fence.Token, balance int) error {
		return os.WriteFile(path, []byte(strconv.Itoa(balance)), 0o600)
	}
	if guarded {
		a.advance = func(_ context.Context, t fence.Token) error { return filefence.Advance(path, t) }
		a.write = func(_ context.Context, t fence.Token, balance int) error {
			return filefence.WriteFile(path, t, []byte(strconv.Itoa(balance)), 0o600)
		}
	}
	return a
}

// found writes the first balance to every account. The parent calls it before it starts holders.
func (b bank) found(balance int) error {
	for _, guarded := range []bool{true, false} {
		if err := os.WriteFile(filepath.Join(b.Dir, spell("file", guarded)), []byte(strconv.Itoa(balance)), 0o600); err != nil {
			return err
		}
	}
	d, err := b.database()
	if err != nil {
		return err
	}
	defer d.Close()
	return d.found(balance)
}
