package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// watch counts what a watch of all objects sees. If the API server ends its stream, it goes on from the last version, as
// Kubernetes' clients do.
type watch struct {
	s      *apiServer
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	version uint64                    // of the last event
	seen    map[string]map[string]int // the number of events by type and name
	streams int                       // that were opened
	wrong   error                     // the first thing that must not happen
}

// errGone is the failure of a watch whose version the API server no longer knows.
var errGone = errors.New("the watch has to begin again")

// startWatch watches from a version on.
func startWatch(t *testing.T, s *apiServer, version string) *watch {
	t.Helper()
	from, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{s: s, cancel: cancel, ended: make(chan struct{}), version: from, seen: make(map[string]map[string]int)}
	go func() {
		defer close(w.ended)
		for ctx.Err() == nil && w.failure() == nil {
			w.stream(ctx)
		}
	}()
	t.Cleanup(w.end)
	return w
}

// end ends the watch and waits for its goroutine.
func (w *watch) end() {
	w.cancel()
	<-w.ended
}

func (w *watch) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

// stream reads one stream to its end.
func (w *watch) stream(ctx context.Context) {
	path := fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", collection, w.next())
	resp, err := w.s.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		if isStatus(err, http.StatusGone) {
			w.fail(fmt.Errorf("%w: %w", errGone, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
		return
	}
	defer resp.Body.Close()
	for events := json.NewDecoder(resp.Body); ; {
		var e event
		if events.Decode(&e) != nil || !w.take(e) {
			return
		}
	}
}

// next counts a stream and returns the version from which it goes on.
func (w *watch) next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams++
	return w.version
}

func (w *watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = err
	}
}

// event is a message of a watch. Of an ERROR, the object is a status.
type event struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Spec     struct{ Number int64 }
		Code     int
		Message  string
	}
}

// take counts an event and says whether the stream goes on.
func (w *watch) take(e event) bool {
	if e.Type == "ERROR" {
		if e.Object.Code == http.StatusGone {
			w.fail(fmt.Errorf("%w: %s", errGone, e.Object.Message))
		}
		return false
	}
	version, err := strconv.ParseUint(e.Object.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		w.fail(err)
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.version
	w.version = version
	if e.Type == "BOOKMARK" {
		return true
	}
	if version <= before && w.wrong == nil {
		w.wrong = fmt.Errorf("%s of %s in version %d, after version %d", e.Type, e.Object.Metadata.Name, version, before)
	}
	if w.seen[e.Type] == nil {
		w.seen[e.Type] = make(map[string]int)
	}
	w.seen[e.Type][e.Object.Metadata.Name]++
	return true
}

// awaitAll waits until the watch has seen an event of a type for each object, and fails the test if it has seen one twice, or
// a change that nobody made.
func (w *watch) awaitAll(kind string) {
	w.s.t.Helper()
	w.await(kind, *objects)
	w.mu.Lock()
	defer w.mu.Unlock()
	if modified := len(w.seen["MODIFIED"]); modified > 0 {
		w.s.t.Errorf("%s: the watch has seen %d changes that nobody made", w.s.name, modified)
	}
}

// await waits until the watch has seen events of a type for a number of objects, and fails the test if it has seen one twice.
func (w *watch) await(kind string, number int) {
	t := w.s.t
	t.Helper()
	w.s.eventually(writeLimit, fmt.Sprint("the watch sees ", number, " objects ", kind), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.wrong != nil {
			t.Fatalf("%s: %v", w.s.name, w.wrong)
		}
		if seen := len(w.seen[kind]); seen < number {
			return fmt.Errorf("%d of %d", seen, number)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("the watch %s has seen %d objects %s, in %d streams", w.s.name, number, kind, w.streams)
	for name, times := range w.seen[kind] {
		if times != 1 {
			t.Errorf("%s: the watch has seen %s %s %d times", w.s.name, kind, name, times)
		}
	}
}
