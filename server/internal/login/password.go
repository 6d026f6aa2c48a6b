package login

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// The bounds of the cost of bcrypt, and its default. Each step doubles the time that a password takes.
const (
	MinCost     = bcrypt.MinCost
	MaxCost     = bcrypt.MaxCost
	DefaultCost = bcrypt.DefaultCost
)

// ErrLongPassword refuses a password that bcrypt would cut off. Its text is etcd's.
var ErrLongPassword = bcrypt.ErrPasswordTooLong

// Passwords hashes and checks passwords. Make one with [NewPasswords]. Its methods are safe for concurrent use.
type Passwords struct {
	cost  int
	turns *keyspace.Turns // of bcrypt, by client

	once  sync.Once
	decoy []byte // hash of a password that nobody knows
}

// NewPasswords returns Passwords whose hashes have the given cost. A quarter of the processors, and one at least, work on
// passwords at a time.
func NewPasswords(cost int) *Passwords {
	return &Passwords{cost: cost, turns: keyspace.NewTurns(runtime.GOMAXPROCS(0) / 4)}
}

// Hash returns the hash of a password. client names the client that waits for it, because clients take turns.
func (p *Passwords) Hash(ctx context.Context, client, password string) ([]byte, error) {
	end, err := keyspace.TakeTurn(keyspace.InTurn(ctx, p.turns, client))
	if err != nil {
		return nil, err
	}
	defer end()
	return bcrypt.GenerateFromPassword([]byte(password), p.cost)
}

// Matches reports whether a password has a hash. Without a hash it takes as long, and reports false, so a client cannot
// find out by the time which users exist.
func (p *Passwords) Matches(ctx context.Context, client string, hash []byte, password string) (bool, error) {
	end, err := keyspace.TakeTurn(keyspace.InTurn(ctx, p.turns, client))
	if err != nil {
		return false, err
	}
	defer end()
	known := len(hash) > 0
	if !known {
		hash = p.unknown()
	}
	err = bcrypt.CompareHashAndPassword(hash, []byte(password))
	switch {
	case err == nil:
		return known, nil
	case errors.Is(err, bcrypt.ErrMismatchedHashAndPassword):
		return false, nil
	}
	return false, fmt.Errorf("the stored hash of a password cannot be used: %w", err)
}

// unknown returns the hash that stands for users without one.
func (p *Passwords) unknown() []byte {
	p.once.Do(func() {
		var err error
		if p.decoy, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), p.cost); err != nil {
			panic(fmt.Sprintf("login: no hash of cost %d: %v", p.cost, err)) // the configuration is checked before
		}
	})
	return p.decoy
}
