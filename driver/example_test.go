package driver_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/leasekeeper/leasekeeper/driver"
)

// mine is a backend of one's own. A real one implements all methods of [driver.Backend].
type mine struct{ driver.Backend }

func (mine) Scheme() string { return "mine" }

func ExampleRegister() {
	driver.Register("mine", func(ctx context.Context, u *url.URL) (driver.Backend, error) {
		return mine{}, nil
	})
	b, err := driver.Open(context.Background(), "mine://host/namespace")
	fmt.Println(b.Scheme(), err)
	// Output: mine <nil>
}

func ExampleCan() {
	_, err := driver.Can[driver.Historian](mine{})
	fmt.Println(err)
	fmt.Println(errors.Is(err, driver.ErrUnsupported))
	// Output:
	// history is not supported by the backend mine
	// true
}

func ExampleCheckName() {
	fmt.Println(driver.CheckName("jobs/nightly"))
	fmt.Println(driver.CheckName("jobs//nightly"))
	// Output:
	// <nil>
	// invalid: the name "jobs//nightly" has a part that is empty, "." or "..": write it like jobs/nightly
}

func ExampleHeldError() {
	var err error = &driver.HeldError{Name: "jobs/nightly", Holder: driver.Holder{ID: "host-2/4711"}, Token: 34}
	var held *driver.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Holder.ID, held.Token, errors.Is(err, driver.ErrHeld))
	}
	// Output: host-2/4711 34 true
}
