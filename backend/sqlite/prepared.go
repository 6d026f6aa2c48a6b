package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// prepared has the statements that have run: to parse and plan one takes longer than to run it. Values are
// arguments, so there are only a few different statements.
type prepared struct {
	mu         sync.Mutex
	statements map[string]*sql.Stmt
	closed     bool
}

var errStatementsClosed = errors.New("the store was closed by this program")

// get returns a statement that was prepared on at least one connection. It prepares itself on others.
func (p *prepared) get(ctx context.Context, db *sql.DB, text string) (*sql.Stmt, error) {
	if s, err := p.known(text); s != nil || err != nil {
		return s, err
	}
	fresh, err := db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s := p.statements[text]; {
	case p.closed:
		return nil, errors.Join(errStatementsClosed, fresh.Close())
	case s != nil: // another caller was faster
		return s, fresh.Close()
	case p.statements == nil:
		p.statements = make(map[string]*sql.Stmt)
	}
	p.statements[text] = fresh
	return fresh, nil
}

func (p *prepared) known(text string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errStatementsClosed
	}
	return p.statements[text], nil
}

// close closes all statements. Running ones end first.
func (p *prepared) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var failed []error
	for _, s := range p.statements { // order: all are closed
		failed = append(failed, s.Close())
	}
	p.statements = nil
	return errors.Join(failed...)
}
