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

// bucket is a store of one object, with the conditional writes that S3 and its like offer: a PUT with
// If-Match replaces only the version that was read, one with If-None-Match: * only creates.
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
// same step in which it writes, so it does not matter how long this program is paused between the two
// requests. Readers may come between; writers make the PUT fail, and then the token is looked at again.
func putFenced(ctx context.Context, url string, token fence.Token, body string) error {
	const attempts = 5 // used up only where many holders, or many writers of one, come at once
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
			return err // it may have been written; repeating it with the same token is safe
		}
		answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			return nil
		case http.StatusPreconditionFailed, http.StatusConflict:
			continue // somebody wrote between the two requests
		default:
			return fmt.Errorf("the object was not written: %s", answer.Status)
		}
	}
	return fmt.Errorf("the object was changed %d times while it was being written: try again later", attempts)
}

type condition struct{ header, value string }

// readToken returns under which condition the object is still the one that was read, and its token.
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
	if err != nil { // somebody wrote it without a token: it must not be taken for an old one
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
