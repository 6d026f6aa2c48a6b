package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

const (
	// pursuitAttempts is the least number of attempts that one part of a renewal makes before it gives up.
	pursuitAttempts = 8
	// mostAttempts is how many attempts are under way at the same time.
	mostAttempts = 2
)

// errReplaced ends an attempt that another attempt replaces.
var errReplaced = errors.New("etcd did not answer in time, so another attempt replaces this one")

// pursuit carries out one part of a renewal: it renews leases over a stream, or checks their keys. Its oldest attempt runs
// until the context ends, however slow etcd is. While etcd is silent, the pursuit makes a second attempt at another endpoint,
// and replaces that one if etcd is silent there too.
type pursuit struct {
	b       *Backend
	renewal *endpoints.Renewal
	// attempt does what is left to do, at one endpoint. It returns nil when nothing is left.
	attempt func(ctx context.Context, w *endpoint) error
	// final reports whether an error is etcd's last word; it may be nil.
	final func(error) bool
	// news receives a signal when an attempt receives an answer; it may be nil.
	news <-chan struct{}
	// over is closed when nothing is left to do.
	over <-chan struct{}

	running sync.WaitGroup
	ended   chan *attempt // has room for all attempts
	begun   int
	alive   []*attempt // oldest first, without the replaced attempts
	newest  int64      // the number of the endpoint of the last attempt
}

// attempt is one attempt of a pursuit.
type attempt struct {
	number int64 // of its endpoint
	cancel context.CancelCauseFunc
	err    error // once it has ended
}

// run makes attempts until one returns nil, nothing is left to do, an error is final, all have failed, or ctx ends.
func (p *pursuit) run(ctx context.Context) error {
	most, stalls := p.b.endpoints.Attempts(pursuitAttempts), 0
	p.ended = make(chan *attempt, most)
	defer p.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.begin(ctx)
	next := time.NewTimer(endpoints.Stall(ctx, stalls))
	defer next.Stop()
	for {
		select {
		case <-p.over:
			return nil
		case <-ctx.Done():
			if len(p.alive) > 0 {
				p.b.endpoints.Leave(p.alive[0].number)
			}
			return endpoints.Ended(ctx)
		case <-p.news:
			if len(p.alive) > 0 {
				next.Reset(endpoints.Stall(ctx, stalls))
			}
		case <-next.C:
			if p.begun == most {
				continue // the attempts under way continue
			}
			if len(p.alive) > 0 {
				p.b.endpoints.Leave(p.newest)
				stalls++
			}
			p.begin(ctx)
			next.Reset(endpoints.Stall(ctx, stalls))
		case a := <-p.ended:
			a.cancel(nil)
			alive := slices.Contains(p.alive, a)
			switch {
			case a.err == nil || alive && p.final != nil && p.final(a.err):
				return a.err
			case !alive: // another attempt has replaced it
				continue
			}
			p.failed(a)
			if len(p.alive) == 0 && p.begun == most {
				return a.err
			}
			next.Reset(p.b.endpoints.PauseLength(p.begun))
		}
	}
}

// begin makes another attempt. If there are enough, it replaces the youngest.
func (p *pursuit) begin(ctx context.Context) {
	if len(p.alive) == mostAttempts {
		p.alive[mostAttempts-1].cancel(errReplaced)
		p.alive = p.alive[:mostAttempts-1]
	}
	var own []int64
	if len(p.alive) > 0 {
		own = append(own, p.alive[0].number)
	}
	if p.begun > 0 {
		own = append(own, p.newest)
	}
	w, number := p.b.endpoints.Take(p.renewal, own...)
	a := &attempt{number: number}
	ctx, a.cancel = context.WithCancelCause(ctx)
	p.alive, p.newest = append(p.alive, a), number
	p.begun++
	p.running.Go(func() {
		_, a.err = p.b.attempt(ctx, w, func(ctx context.Context, w *endpoint, _ ...grpc.CallOption) error { return p.attempt(ctx, w) })
		p.ended <- a
	})
}

// failed removes an attempt that has failed.
func (p *pursuit) failed(a *attempt) {
	p.alive = slices.DeleteFunc(p.alive, func(other *attempt) bool { return other == a })
	if !answered(a.err) {
		p.b.endpoints.Leave(a.number)
	}
}
