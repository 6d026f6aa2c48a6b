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
// If the server refuses a stale token, RoundTrip returns a [*fence.StaleError] instead of an answer. Its Name is
// the host and path of the request. [http.Client] wraps it, so look for it with errors.Is or errors.As.
// RoundTrip returns all other answers unchanged, also 412 for other reasons.
//
// The server may have carried out a request that fails in any other way. It can be repeated with the same
// token.
type Transport struct {
	// Base does the sending; [http.DefaultTransport] if it is nil.
	Base http.RoundTripper
	// Token returns the token of the lease under which the request is made; its argument is the request's
	// context. It returns an error if the lease is lost. Then RoundTrip sends nothing and wraps the error.
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
		const enough = 4 << 10 // bytes to read of a short text, so that the connection can be used again
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
		err = fmt.Errorf("%w: Transport.Token returned 0, which is no fencing token: return the token of the lease", fence.ErrInvalid)
	}
	return token, err
}

// refusedFor returns the newer token because of which the server refused the request. It returns 0 if the server did
// not refuse it, or refused it for another reason, such as a condition that the caller sent.
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
