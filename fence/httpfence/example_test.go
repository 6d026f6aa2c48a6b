package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/httpfence"
)

// lease stands for a lease that a program holds.
type lease struct {
	token fence.Token
	lost  error
}

func (l *lease) current(context.Context) (fence.Token, error) { return l.token, l.lost }

func Example() {
	// The resource: a server that keeps one text for each path.
	guard := fence.NewGuard(fence.Config{})
	texts := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone, or a new holder has replaced it: write nothing
		}
		fmt.Printf("the server writes %q\n", text)
	})
	server := httptest.NewServer(httpfence.Middleware(httpfence.Config{
		Guard: guard,
		Name:  func(r *http.Request) string { return r.URL.Path },
	})(texts))
	defer server.Close()

	// Two holders, one after the other.
	put := func(l *lease, text string) error {
		client := http.Client{Transport: &httpfence.Transport{Token: l.current}}
		request, err := http.NewRequest(http.MethodPut, server.URL+"/report", strings.NewReader(text))
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	monday, tuesday := &lease{token: 33}, &lease{token: 34}
	fmt.Println(put(monday, "Monday"))
	fmt.Println(put(tuesday, "Tuesday"))
	fmt.Println(errors.Is(put(monday, "Monday again"), fence.ErrStale))

	monday.lost = errors.New("lease lost")
	fmt.Println(errors.Is(put(monday, "Monday once more"), monday.lost))
	// Output:
	// the server writes "Monday"
	// <nil>
	// the server writes "Tuesday"
	// <nil>
	// true
	// true
}

func ExampleMiddleware() {
	guarded := httpfence.Middleware(httpfence.Config{
		Guard: fence.NewGuard(fence.Config{}),
		Name:  func(r *http.Request) string { return r.URL.Path },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))

	for _, token := range []string{"34", "33", "", "thirty-five"} {
		request, answer := httptest.NewRequest(http.MethodPut, "/report", nil), httptest.NewRecorder()
		if token != "" {
			request.Header.Set(httpfence.Header, token)
		}
		guarded.ServeHTTP(answer, request)
		fmt.Printf("%d %q\n", answer.Code, answer.Header().Get(httpfence.HighestHeader))
	}
	// Output:
	// 200 ""
	// 412 "34"
	// 428 ""
	// 400 ""
}

func ExampleTransport() {
	lost := errors.New("lease lost")
	client := http.Client{Transport: &httpfence.Transport{
		Token: func(context.Context) (fence.Token, error) { return 0, lost },
	}}
	_, err := client.Get("http://resource.example/report")
	fmt.Println(errors.Is(err, lost))
	// Output: true
}

func ExampleTokenOf() {
	header := http.Header{}
	fmt.Println(httpfence.TokenOf(header))
	header.Set(httpfence.Header, "34")
	fmt.Println(httpfence.TokenOf(header))
	header.Add(httpfence.Header, "35")
	_, err := httpfence.TokenOf(header)
	fmt.Println(errors.Is(err, fence.ErrInvalid))
	// Output:
	// 0 <nil>
	// 34 <nil>
	// true
}
