package otellease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
	otellease "github.com/leasekeeper/leasekeeper/contrib/otel"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 15 * time.Second

// relied is the part of a TTL that a holder relies on.
var relied = clock.DefaultDrift.RelyRemote(ttl)

var errFunc = errors.New("the function failed")

// world is a store in a bubble of synctest, where time passes only while all goroutines wait, and a real SDK that keeps
// spans in memory.
type world struct {
	*testing.T
	store    *memory.Store
	exporter *tracetest.InMemoryExporter
	sdk      *sdktrace.TracerProvider
	tracing  *otellease.Tracer
}

// bubble runs a test in a bubble.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		exporter := tracetest.NewInMemoryExporter()
		sdk := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		test(&world{t, memory.New(memory.WithClock(memory.NewRunningClock())), exporter, sdk, otellease.New(sdk)})
	})
}

// keeper returns a keeper, and its client of the store. The test's end closes it.
func (w *world) keeper(id string, o ...leasekeeper.KeeperOption) (*leasekeeper.Keeper, *memory.Backend) {
	w.Helper()
	client := w.store.Backend()
	return keepertest.New(w, time.Hour, client, append(o, leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl))...), client
}

// traced returns a keeper whose reports go to the tracer.
func (w *world) traced(id string) (*leasekeeper.Keeper, *memory.Backend) {
	return w.keeper(id, leasekeeper.WithHook(w.tracing.Hook))
}

// span starts a span of the program.
func (w *world) span() (context.Context, trace.Span) {
	return w.sdk.Tracer("test").Start(w.Context(), "program")
}

// ended returns the spans of a name that have ended.
func (w *world) ended(name string) (found []tracetest.SpanStub) {
	synctest.Wait()
	for _, span := range w.exporter.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// one returns the span of a name, and fails unless exactly one has ended.
func (w *world) one(name string) tracetest.SpanStub {
	w.Helper()
	found := w.ended(name)
	if len(found) != 1 {
		w.Fatalf("%d spans %s", len(found), name)
	}
	return found[0]
}

// has fails unless the span has the attribute.
func (w *world) has(span tracetest.SpanStub, want attribute.KeyValue) {
	w.Helper()
	if !slices.Contains(span.Attributes, want) {
		w.Errorf("%s has %v, and no %v", span.Name, span.Attributes, want)
	}
}

// failed fails unless the status of the span is an error, or is none.
func (w *world) failed(span tracetest.SpanStub, want bool) {
	w.Helper()
	if got := span.Status.Code == codes.Error; got != want {
		w.Errorf("the status of %s is %+v", span.Name, span.Status)
	}
}

// happened fails unless the span has these events about leases.
func (w *world) happened(span tracetest.SpanStub, want ...string) {
	w.Helper()
	var got []string
	for _, event := range span.Events {
		if event.Name != "exception" {
			got = append(got, event.Name)
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("the events of %s are %q, want %q", span.Name, got, want)
	}
}

func stalled(b *memory.Backend) (remove func()) {
	return b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})
}

// untilLost is a function that runs until its context ends.
func untilLost(ctx context.Context, _ *leasekeeper.Lease) error {
	<-ctx.Done()
	return nil
}
