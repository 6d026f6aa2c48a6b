package otellease

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// The names of the spans.
const (
	spanAcquire = "leasekeeper.acquire"
	spanRun     = "leasekeeper.run"
	spanTenure  = "leasekeeper.tenure"
)

// The keys of the attributes.
const (
	keyName   = attribute.Key("leasekeeper.name")
	keyToken  = attribute.Key("leasekeeper.token")
	keyWaited = attribute.Key("leasekeeper.waited_seconds")
	keyHolder = attribute.Key("leasekeeper.holder")
	keyReason = attribute.Key("leasekeeper.reason")
	keyLeft   = attribute.Key("leasekeeper.left_seconds")
)

// Tracer makes spans around calls of one keeper. It is safe for concurrent use.
type Tracer struct {
	tracer  trace.Tracer
	watched watched
}

// New returns a tracer that makes its spans with p. If p is nil, it uses the provider that is global at this moment.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return &Tracer{tracer: p.Tracer("github.com/leasekeeper/leasekeeper/contrib/otel")}
}

// start starts a span about a name. Requests with the context that it returns belong to the span.
func (t *Tracer) start(ctx context.Context, span, name string) (context.Context, trace.Span) {
	ctx, started := t.tracer.Start(ctx, span, trace.WithAttributes(keyName.String(name)))
	return Propagate(ctx), started
}

// Acquire is [leasekeeper.Keeper.Acquire] in a span. The context of the lease does not carry the span, because the span
// has ended when the lease begins. With [leasekeeper.NoWait], Acquire does not wait.
func (t *Tracer) Acquire(ctx context.Context, k *leasekeeper.Keeper, name string, o ...leasekeeper.Option) (*leasekeeper.Lease, error) {
	within, span := t.start(ctx, spanAcquire, name)
	defer span.End()
	began := time.Now()
	lease, err := k.Acquire(backend.WithTraceparent(ctx, backend.Traceparent(within)), name, o...)
	if err != nil {
		setRefused(span, name, err)
		return nil, err
	}
	setHeld(span, lease, time.Since(began))
	if caller := trace.SpanFromContext(ctx); caller.IsRecording() {
		t.watched.add(lease, caller)
	}
	return lease, nil
}

// Run is [leasekeeper.Keeper.Run] in a span. The context of fn carries the span.
func (t *Tracer) Run(ctx context.Context, k *leasekeeper.Keeper, name string, fn leasekeeper.Func, o ...leasekeeper.Option) error {
	ctx, span := t.start(ctx, spanRun, name)
	defer span.End() // records a panic of fn
	_, acquire := t.start(ctx, spanAcquire, name)
	began, ran := time.Now(), false
	defer func() {
		if !ran {
			acquire.End()
		}
	}()
	err := k.Run(ctx, name, func(inner context.Context, lease *leasekeeper.Lease) error {
		ran = true
		waited := time.Since(began)
		setHeld(acquire, lease, waited)
		acquire.End()
		setHeld(span, lease, waited)
		return t.under(inner, lease, span, fn, ctx.Err)
	}, o...)
	switch {
	case err == nil:
	case ran:
		setFailed(span, err)
	default:
		setRefused(acquire, name, err)
		setRefused(span, name, err)
	}
	return err
}

// Func returns a function that runs fn in a span, for [leasekeeper.Keeper.Campaign] and others that run a function once in
// each tenure. The context of fn carries the span.
func (t *Tracer) Func(fn leasekeeper.Func) leasekeeper.Func {
	return func(ctx context.Context, lease *leasekeeper.Lease) error {
		inner, span := t.start(ctx, spanTenure, lease.Name())
		defer span.End()
		span.SetAttributes(tokenOf(lease.Token()))
		err := t.under(inner, lease, span, fn, nil)
		if err != nil {
			setFailed(span, err)
		}
		return err
	}
}

// under runs fn under a lease whose events belong to span. callerEnded says why the call has ended that fn belongs to; nil
// if that is unknown.
func (t *Tracer) under(ctx context.Context, lease *leasekeeper.Lease, span trace.Span, fn leasekeeper.Func, callerEnded func() error) error {
	events := t.watched.add(lease, span)
	defer func() {
		t.watched.remove(lease, events)
		why := context.Cause(lease.Context())
		switch loss := lease.Check(); {
		case loss != nil:
			events.lost(loss)
		case callerEnded != nil && callerEnded() == nil && errors.Is(why, leasekeeper.ErrLost):
			events.endsEarly(why) // only the lease itself can have ended its context
		}
	}()
	return fn(ctx, lease)
}

// tokenOf returns the attribute of a token. Stores count tokens up, far from the end of 63 bits.
func tokenOf(t leasekeeper.Token) attribute.KeyValue { return keyToken.Int64(int64(t)) }

// setHeld records that a call got its name.
func setHeld(span trace.Span, lease *leasekeeper.Lease, waited time.Duration) {
	span.SetAttributes(tokenOf(lease.Token()), keyWaited.Float64(waited.Seconds()))
}

// setRefused records that a call did not get its name. Another holder is an answer and no error.
func setRefused(span trace.Span, name string, err error) {
	if held, ok := errors.AsType[*leasekeeper.HeldError](err); ok && held.Name == name {
		span.SetAttributes(keyHolder.String(held.Holder.ID))
		return
	}
	setFailed(span, err)
}

func setFailed(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
