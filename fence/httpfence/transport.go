package httpfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/leasekeeper/leasekeeper/fence"
)

// Transport is a [http.RoundTripper] that puts the token of a lease on each request. It may be used by any
// number of goroutines if Base and Token may.
//
// A refusal for a stale token comes back as a [*fence.StaleError], whose Name is host and path of the
// request, instead of an answer; [http.Client] wraps it, so look for it with errors.Is or errors.As. All
// other answers are passed on as they are, also 412 for other reasons.
//
// A request that fails in any other way may have been carried out. It can be repeated with the same token.
type Transport struct {
	// Base does the sending; [http.DefaultTransport] if it is nil.
	Base http.RoundTripper
	// Token returns the token of the lease under which the request is made; the context is the request's. If
	// it returns an error, because the lease is lost, nothing is sent, and the error comes back wrapped.
	Token func(context.Context) (fence.Token, error)
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip sends a request. It closes the request's body, as the interface demands, also if nothing is sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token(r.Context())
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("the request was not sent: %w", err)
	}
	r = r.Clone(r.Context()) // a round-tripper must not change the request
	r.Header.Set(Header, token.String())
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	answer, err := base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if highest := refusedFor(answer); highest > token {
		const enough = 4 << 10 // of a short text, so that the connection can be used again
		_, _ = io.CopyN(io.Discard, answer.Body, enough)
		answer.Body.Close()
		return nil, &fence.StaleError{Name: r.URL.Host + r.URL.Path, Token: token, Highest: highest}
	}
	return answer, nil
}

func (t *Transport) token(ctx context.Context) (fence.Token, error) {
	if t.Token == nil {
		return 0, errors.New("httpfence: Transport.Token is not set: give it the token of a lease")
	}
	token, err := t.Token(ctx)
	if err == nil && token == 0 {
		err = fmt.Errorf("%w: the lease has no fencing token", fence.ErrInvalid)
	}
	return token, err
}

// refusedFor returns the token for the sake of which the request was refused; 0 if it was not, or for
// something else, such as a condition that the caller made itself.
func refusedFor(answer *http.Response) fence.Token {
	values := answer.Header.Values(HighestHeader)
	if answer.StatusCode != http.StatusPreconditionFailed || len(values) != 1 {
		return 0
	}
	highest, err := fence.ParseToken(values[0])
	if err != nil {
		return 0
	}
	return highest
}
