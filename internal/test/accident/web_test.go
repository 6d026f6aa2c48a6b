//go:build unix

package accident

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/httpfence"
)

// overHTTP is served by a handler that knows nothing of tokens, behind the middleware or not. The holder's
// transport sends its token in both cases: it is of no use if nobody looks at it.
func (b bank) overHTTP(base *http.Transport, guarded bool) account {
	url := b.Web + "/" + spell("http", guarded)
	send := func(ctx context.Context, t fence.Token, method, body string) error {
		// A program would ask its lease here. This one did so before it was stopped.
		token := func(context.Context) (fence.Token, error) { return t, nil }
		_, err := exchange(ctx, &httpfence.Transport{Base: base, Token: token}, method, url, []byte(body))
		return err
	}
	a := account{kind: "an HTTP resource", guarded: guarded, advance: noGuard}
	if guarded {
		a.advance = func(ctx context.Context, t fence.Token) error { return send(ctx, t, http.MethodPost, "") }
	}
	a.balance = func(ctx context.Context) (int, error) { return lookUp(ctx, base, url) }
	a.write = func(ctx context.Context, t fence.Token, balance int) error {
		return send(ctx, t, http.MethodPut, strconv.Itoa(balance))
	}
	return a
}

// deposit is what a holder asks of the parent's memory, in a protocol that has a place for the token.
type deposit struct {
	Token   fence.Token
	Balance *int // nil: only the token is to be remembered
}

// inMemory is a number in the parent's memory, which has a [fence.Guard] for it.
func (b bank) inMemory(base *http.Transport, guarded bool) account {
	url := b.Web + "/" + spell("memory", guarded)
	ask := func(ctx context.Context, d deposit) error {
		body, err := json.Marshal(d)
		if err != nil {
			return err
		}
		text, err := exchange(ctx, base, http.MethodPost, url, body)
		if err != nil {
			return err
		}
		var o outcome
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		return o.err()
	}
	a := account{kind: "memory of another process", guarded: guarded, advance: noGuard}
	if guarded {
		a.advance = func(ctx context.Context, t fence.Token) error { return ask(ctx, deposit{Token: t}) }
	}
	a.balance = func(ctx context.Context) (int, error) { return lookUp(ctx, base, url) }
	a.write = func(ctx context.Context, t fence.Token, balance int) error {
		return ask(ctx, deposit{Token: t, Balance: &balance})
	}
	return a
}

// outcome is an error that goes from one process to another.
type outcome struct {
	Failure string
	Stale   *fence.StaleError // if it is [leasekeeper.ErrStale]
	Lost    bool              // it is [leasekeeper.ErrLost]
}

func outcomeOf(err error) (o outcome) {
	if err != nil {
		o.Failure = err.Error()
	}
	if errors.Is(err, leasekeeper.ErrStale) {
		o.Stale, _ = errors.AsType[*fence.StaleError](err)
	}
	o.Lost = errors.Is(err, leasekeeper.ErrLost)
	return o
}

func (o outcome) err() error {
	switch {
	case o.Stale != nil:
		return o.Stale
	case o.Failure != "":
		return errors.New(o.Failure)
	}
	return nil
}

// exchange sends a request and returns the body of an answer that is well.
func exchange(ctx context.Context, way http.RoundTripper, method, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Transport: way}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, err
}

func lookUp(ctx context.Context, way http.RoundTripper, url string) (int, error) {
	text, err := exchange(ctx, way, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// serveAccounts is what the parent serves: an account behind the middleware, one in memory, and both without
// a guard.
func serveAccounts(balance int) http.Handler {
	routes := http.NewServeMux()
	for _, guarded := range []bool{true, false} {
		guard := fence.NewGuard(fence.Config{})
		over, memory := new(number), new(number)
		over.Store(int64(balance))
		memory.Store(int64(balance))

		path, write := "/"+spell("http", guarded), http.Handler(http.HandlerFunc(over.write))
		if guarded {
			write = httpfence.Middleware(httpfence.Config{Guard: guard, Name: func(r *http.Request) string { return r.URL.Path }})(write)
		}
		routes.HandleFunc("GET "+path, over.read)
		routes.Handle(path, write)

		path = "/" + spell("memory", guarded)
		do := guard.Do
		if !guarded {
			do = func(ctx context.Context, _ string, _ fence.Token, write func(context.Context) error) error {
				return write(ctx)
			}
		}
		routes.HandleFunc("GET "+path, memory.read)
		routes.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var d deposit
			if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			err := do(r.Context(), path, d.Token, func(context.Context) error {
				if d.Balance != nil {
					memory.Store(int64(*d.Balance))
				}
				return nil
			})
			_ = json.NewEncoder(w).Encode(outcomeOf(err)) // who is gone hears nothing
		})
	}
	return routes
}

// number is an account in memory.
type number struct{ atomic.Int64 }

func (n *number) read(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, n.Load()) }

// write takes a PUT with the new balance. A POST does nothing: it is there for its token.
func (n *number) write(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		return
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		var balance int64
		if balance, err = strconv.ParseInt(string(text), 10, 64); err == nil {
			n.Store(balance)
			return
		}
	}
	http.Error(w, err.Error(), http.StatusBadRequest)
}
