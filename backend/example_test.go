package backend_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/leasekeeper/leasekeeper/backend"
)

// mine is a backend of the user's own. A real one implements all methods of [backend.Backend].
type mine struct{ backend.Backend }

func (mine) Scheme() string { return "mine" }

func ExampleRegister() {
	backend.Register("mine", func(ctx context.Context, u *url.URL) (backend.Backend, error) {
		return mine{}, nil
	})
	b, err := backend.Open(context.Background(), "mine://host/namespace")
	fmt.Println(b.Scheme(), err)
	// Output: mine <nil>
}

func ExampleCan() {
	_, err := backend.Can[backend.Historian](mine{})
	fmt.Println(err)
	fmt.Println(errors.Is(err, backend.ErrUnsupported))
	// Output:
	// history is not supported by the backend mine
	// true
}

func ExampleCheckName() {
	fmt.Println(backend.CheckName("jobs/nightly"))
	fmt.Println(backend.CheckName("jobs//nightly"))
	// Output:
	// <nil>
	// invalid: the name "jobs//nightly" has a part that is empty, "." or "..": write it like jobs/nightly
}

func ExampleHeldError() {
	var err error = &backend.HeldError{Name: "jobs/nightly", Holder: backend.Holder{ID: "host-2/4711"}, Token: 34}
	var held *backend.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Holder.ID, held.Token, errors.Is(err, backend.ErrHeld))
	}
	// Output: host-2/4711 34 true
}
