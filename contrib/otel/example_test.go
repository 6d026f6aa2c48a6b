package otellease_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasekeeper/leasekeeper"
	otellease "github.com/leasekeeper/leasekeeper/contrib/otel"
)

// The keeper reports to the tracer, which makes the spans.
func ExampleTracer_Run() {
	spans := tracetest.NewInMemoryExporter() // or otlptracegrpc.New
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	ctx := context.Background()
	tracing := otellease.New(provider)
	keeper, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithHook(tracing.Hook))
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	err = tracing.Run(ctx, keeper, "jobs/backup", func(ctx context.Context, lease *leasekeeper.Lease) error {
		return nil // spans that start with ctx are children of the run
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.Attributes[0].Value.AsString(), span.Attributes[1].Value.AsInt64())
	}
	// Output:
	// leasekeeper.acquire jobs/backup 1
	// leasekeeper.run jobs/backup 1
}

// The span ends when the name is held.
func ExampleTracer_Acquire() {
	ctx := context.Background()
	tracing := otellease.New(nil) // the global provider
	keeper, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithHook(tracing.Hook))
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	lease, err := tracing.Acquire(ctx, keeper, "jobs/backup")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease)
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: jobs/backup (token 1)
}

// Each tenure of a campaign has a span.
func ExampleTracer_Func() {
	ctx, resign := context.WithCancel(context.Background())
	tracing := otellease.New(nil)
	keeper, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithHook(tracing.Hook))
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	err = keeper.Campaign(ctx, "app/leader", tracing.Func(func(ctx context.Context, lease *leasekeeper.Lease) error {
		fmt.Println("leading under", lease)
		resign()
		return nil
	}))
	fmt.Println(err)
	// Output:
	// leading under app/leader (token 1)
	// context canceled
}

// The hook may stand next to others.
func ExampleTracer_Hook() {
	tracing := otellease.New(nil)
	keeper, err := leasekeeper.Open(context.Background(), "memory:", leasekeeper.WithHook(tracing.Hook),
		leasekeeper.WithHook(func(r leasekeeper.Report) { log.Printf("%T", r) }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keeper.Close())
	// Output: <nil>
}
