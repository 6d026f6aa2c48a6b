package server

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// jsonRequest is one open request, and the memory that it takes of the account of its connection. Its methods are safe for
// concurrent use: the service, the decoder of the body and the HTTP server each use it on a goroutine of their own, and any
// of them may be the last.
type jsonRequest struct {
	number  uint64
	account *account
	// client is the caller, as gRPC would describe it: by the address and the certificate of its connection.
	client *peer.Peer
	cancel context.CancelFunc // ends the request; set before it is served

	mu     sync.Mutex
	broken error       // why a stream of messages could not be read further; guarded by mu
	answer reservation // guarded by mu
	body   int64       // bytes taken for the body; guarded by mu
	ended  bool        // everything was released, and nothing more is taken; guarded by mu
}

// jsonRequestOf returns the request in the context of its HTTP handler.
func jsonRequestOf(ctx context.Context) *jsonRequest {
	q, _ := ctx.Value(jsonKey{}).(*jsonRequest)
	return q
}

type jsonKey struct{}

// fail ends the request because its body cannot be read further.
func (q *jsonRequest) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken == nil && !q.ended {
		q.broken = unreadable(err)
	}
	q.cancel()
}

// reason returns why the request failed, if a service has failed with err.
func (q *jsonRequest) reason(err error) error {
	if q == nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken != nil {
		return q.broken
	}
	return err
}

func (q *jsonRequest) metadata() metadata.MD {
	return metadata.Pairs(jsonRequestKey, string(binary.BigEndian.AppendUint64(nil, q.number)))
}

// Take implements [keyspace.Room] for the answer.
func (q *jsonRequest) Take(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return context.Canceled
	}
	return q.answer.Take(answerShare * n)
}

// Give implements [keyspace.Room].
func (q *jsonRequest) Give(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer.Give(answerShare * n)
}

// settle sets what the answer takes, for a message of n bytes.
func (q *jsonRequest) settle(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.answer.settle(answerShare * int64(n))
	}
}

// await replaces what the answer takes by what a message of n bytes takes. It waits until there is memory for it. One
// message never takes more than one connection may.
func (q *jsonRequest) await(ctx context.Context, n int) error {
	q.settle(0)
	need := min(answerShare*int64(n), q.account.budget.pools[answerBytes].each)
	for tries := 0; ; tries++ {
		q.mu.Lock()
		err := context.Canceled
		if !q.ended {
			if err = q.account.take(answerBytes, need); err == nil {
				q.answer.built, q.answer.taken = need, need
			}
		}
		ended := q.ended
		q.mu.Unlock()
		if err == nil || ended {
			return err
		}
		if err := lifetime.Pause(ctx, backoff.Doubled(sendPause, longestSendPause, tries)); err != nil {
			return err
		}
	}
}

// takeBody takes memory for n bytes of the body.
func (q *jsonRequest) takeBody(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return context.Canceled
	}
	if err := q.account.take(requestBytes, bodyShare*int64(n)); err != nil {
		return status.Error(codes.ResourceExhausted, "etcdserver: "+err.Error())
	}
	q.body += bodyShare * int64(n)
	return nil
}

// end releases everything.
func (q *jsonRequest) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.account.release(requestBytes, q.body)
	q.answer.settle(0)
}

// openJSON are the open requests. The zero value has none.
type openJSON struct {
	last     atomic.Uint64
	requests sync.Map // *jsonRequest by number
}

// begin opens a request.
func (o *openJSON) begin(conn *httpConn) *jsonRequest {
	a := conn.account
	q := &jsonRequest{
		number: o.last.Add(1), account: a, answer: reservation{account: a}, client: &peer.Peer{Addr: conn.RemoteAddr()},
	}
	if conn.state != nil {
		q.client.AuthInfo = credentials.TLSInfo{State: *conn.state}
	}
	o.requests.Store(q.number, q)
	return q
}

// end closes a request, when its answer is complete or its client has gone.
func (o *openJSON) end(q *jsonRequest) {
	o.requests.Delete(q.number)
	q.end()
}

// of returns the open request for which the gateway has sent a request, nil if there is none.
func (o *openJSON) of(ctx context.Context) *jsonRequest {
	values := metadata.ValueFromIncomingContext(ctx, jsonRequestKey)
	if len(values) != 1 || len(values[0]) != 8 {
		return nil
	}
	q, _ := o.requests.Load(binary.BigEndian.Uint64([]byte(values[0])))
	request, _ := q.(*jsonRequest)
	return request
}

// countedBody counts the memory of a body while it is read. Of a stream of messages it counts the largest one, because
// the decoder keeps its buffer.
type countedBody struct {
	io.ReadCloser
	request *jsonRequest
	message int // bytes read of the present message
	counted int // bytes taken
}

// Read implements [io.Reader].
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.message += n; c.message > c.counted {
		if err := c.request.takeBody(c.message - c.counted); err != nil {
			return n, err
		}
		c.counted = c.message
	}
	return n, err
}

// decoded returns the result of decoding a message. If the body cannot be read further, it ends the request, and then the
// gateway only needs to know that no message follows.
func (c *countedBody) decoded(err error) error {
	if err != nil && err != io.EOF {
		c.request.fail(err)
		return io.EOF
	}
	return err
}
