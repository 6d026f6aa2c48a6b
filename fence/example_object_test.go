package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/leasekeeper/leasekeeper/fence"
)

// bucket is a store of one object with the conditional writes of cloud object stores. A PUT with If-Match replaces
// only the version that was read. A PUT with If-None-Match: * only creates an object.
type bucket struct {
	mu      sync.Mutex
	version int // 0 while there is no object
	body    string
	token   string // metadata, written and read together with the body
}

const metaToken = "X-Amz-Meta-Fencing-Token"

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	etag := strconv.Quote(strconv.Itoa(b.version))
	switch {
	case r.Method == http.MethodPut:
		match, noneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
		if match != "" && (b.version == 0 || match != etag) || noneMatch == "*" && b.version != 0 {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		b.version, b.body, b.token = b.version+1, string(body), r.Header.Get(metaToken)
	case b.version == 0:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("ETag", etag)
		w.Header().Set(metaToken, b.token)
		_, _ = io.WriteString(w, b.body)
	}
}

// putFenced replaces an object unless a newer holder has written it. The store compares the version in the
// same step in which it writes, so this program may be paused for any time between its two requests. If
// another program writes between them, the PUT fails, and putFenced reads the token again.
func putFenced(ctx context.Context, url string, token fence.Token, body string) error {
	const attempts = 5 // exhausted only when many programs write at the same time
	for range attempts {
		condition, seen, err := readToken(ctx, url)
		if err != nil {
			return err
		}
		if token < seen {
			return &fence.StaleError{Name: "object", Token: token, Highest: seen}
		}
		put, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		put.Header.Set(metaToken, token.String())
		put.Header.Set(condition.header, condition.value)
		answer, err := http.DefaultClient.Do(put)
		if err != nil {
			return err // the outcome is unknown; repeating the write with the same token is safe
		}
		answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			return nil
		case http.StatusPreconditionFailed, http.StatusConflict:
			continue // another program wrote between the two requests
		default:
			return fmt.Errorf("the object was not written: %s", answer.Status)
		}
	}
	return fmt.Errorf("other programs changed the object before each of %d attempts to write it: try again later", attempts)
}

type condition struct{ header, value string }

// readToken returns the token of the object, and the condition under which a PUT replaces only this version.
func readToken(ctx context.Context, url string) (condition, fence.Token, error) {
	head, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return condition{}, 0, err
	}
	answer, err := http.DefaultClient.Do(head)
	if err != nil {
		return condition{}, 0, err
	}
	answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return condition{"If-None-Match", "*"}, 0, nil
	case http.StatusOK:
	default:
		return condition{}, 0, fmt.Errorf("the object cannot be read: %s", answer.Status)
	}
	seen, err := fence.ParseToken(answer.Header.Get(metaToken))
	if err != nil { // a program wrote it without a token: the age of its write is not known
		return condition{}, 0, fmt.Errorf("the object's metadata %s: %w", metaToken, err)
	}
	return condition{"If-Match", answer.Header.Get("ETag")}, seen, nil
}

// An object in a store with conditional writes needs no guard: the token lies in its metadata, and the store
// itself makes the check and the write one step.
func Example_conditionalObjectWrites() {
	store := &bucket{}
	server := httptest.NewServer(store)
	defer server.Close()
	ctx, url := context.Background(), server.URL+"/report"

	fmt.Println("33:", putFenced(ctx, url, 33, "Monday"))
	fmt.Println("34:", putFenced(ctx, url, 34, "Tuesday"))
	fmt.Println("33 again:", errors.Is(putFenced(ctx, url, 33, "Monday again"), fence.ErrStale))
	fmt.Println("34 again:", putFenced(ctx, url, 34, "Tuesday, corrected"))
	fmt.Println(store.body, store.token)
	// Output:
	// 33: <nil>
	// 34: <nil>
	// 33 again: true
	// 34 again: <nil>
	// Tuesday, corrected 34
}
