package kubernetes

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

const (
	writers = 16
	page    = 500

	// writeLimit bounds the attempts to make one change.
	writeLimit = 2 * time.Minute

	collection = "/apis/example.org/v1/namespaces/default/widgets"
)

var objects = flag.Int("objects", 10_000, "the number of objects")

// Ten thousand objects of a CustomResourceDefinition are created and deleted while the leader is killed and a member is
// replaced. Every watch sees each object once, and lists have what was written. One API server answers from its cache of
// watches, as it does by default; the other one asks the cluster.
func TestObjectsOutliveMembers(t *testing.T) {
	suite.Need(t, "kubernetes")
	binary := buildAPIServer(t)
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			c := cluster.Start(t, kind, 3, "--watch-progress-notify-interval=5s")
			cached := startAPIServer(t, "with a cache", binary, c.Endpoints())
			plain := startAPIServer(t, "without a cache", binary, c.Endpoints(), "--watch-cache=false")
			define(cached, plain)
			outlive(t, c, cached, plain)
		})
	}
}

// define creates the kind of the objects and waits until both API servers serve it.
func define(cached, plain *apiServer) {
	type object = map[string]any
	cached.change(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "widgets.example.org"},
		"spec": object{
			"group": "example.org", "scope": "Namespaced",
			"names": object{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{object{"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": object{
				"type":       "object",
				"properties": object{"spec": object{"type": "object", "properties": object{"number": object{"type": "integer"}}}},
			}}}},
		},
	})
	for _, s := range []*apiServer{cached, plain} {
		s.eventually(startLimit, "the API server serves the new kind", func() error {
			_, err := s.call(http.MethodGet, collection+"?limit=1", nil)
			return err
		})
	}
}

// outlive creates, lists and deletes the objects, while members die.
func outlive(t *testing.T, c *cluster.Cluster, cached, plain *apiServer) {
	servers := []*apiServer{cached, plain}
	var watches []*watch
	for _, s := range servers {
		_, version := s.list()
		watches = append(watches, startWatch(t, s, version))
	}

	creating := cached.each(http.MethodPost)
	creating.reaches(*objects / 8)
	began := creating.done.Load()
	c.Restart(c.KillLeader())
	killed := creating.done.Load()
	c.ReplaceMember(c.Leader())
	t.Logf("%d objects were created before the leader was killed, %d when it was back, and %d when the next leader was replaced", began, killed, creating.done.Load())
	t.Logf("create: %v", creating.wait())
	for _, s := range servers {
		began := time.Now()
		s.wantAll()
		t.Logf("list %s, in pages of %d: %v", s.name, page, time.Since(began).Round(time.Millisecond))
	}
	for _, w := range watches {
		w.awaitAll("ADDED")
	}

	deleting := cached.each(http.MethodDelete)
	deleting.reaches(*objects / 8)
	c.Restart(c.KillLeader())
	t.Logf("%d objects were deleted when the killed leader was back", deleting.done.Load())
	t.Logf("delete: %v", deleting.wait())
	for _, s := range servers {
		if left, _ := s.list(); len(left) > 0 {
			t.Errorf("%s: %d objects are left", s.name, len(left))
		}
	}
	for _, w := range watches {
		w.awaitAll("DELETED")
		w.end()
	}
}

// changes makes one change to each object.
type changes struct {
	s     *apiServer
	began time.Time
	done  atomic.Int64 // changes that were made
	tries atomic.Int64 // attempts that failed
	tasks sync.WaitGroup
}

// each creates or deletes all objects, several at once.
func (s *apiServer) each(method string) *changes {
	c := &changes{s: s, began: time.Now()}
	var next atomic.Int64
	for range writers {
		c.tasks.Go(func() {
			for i := next.Add(1) - 1; i < int64(*objects); i = next.Add(1) - 1 {
				path, body := collection, any(nil)
				if method == http.MethodDelete {
					path += "/" + nameOf(i)
				} else {
					body = widget(i)
				}
				failed, err := s.try(method, path, body)
				c.tries.Add(failed)
				if err != nil {
					s.t.Errorf("%s %s: %v", method, nameOf(i), err)
					return
				}
				c.done.Add(1)
			}
		})
	}
	return c
}

// reaches waits until a number of changes is made.
func (c *changes) reaches(n int) {
	c.s.t.Helper()
	c.s.eventually(writeLimit, fmt.Sprint(n, " changes are made"), func() error {
		if done := c.done.Load(); done < int64(n) {
			return fmt.Errorf("%d of %d", done, n)
		}
		return nil
	})
}

// wait waits for all changes and says how they went.
func (c *changes) wait() string {
	c.tasks.Wait()
	took := time.Since(c.began)
	return fmt.Sprintf("%d objects in %v, %d attempts failed", c.done.Load(), took.Round(time.Millisecond), c.tries.Load())
}

func nameOf(i int64) string { return fmt.Sprintf("widget-%05d", i) }

func widget(i int64) any {
	return map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget",
		"metadata": map[string]any{"name": nameOf(i)},
		"spec":     map[string]any{"number": i},
	}
}

// change makes a change or fails the test.
func (s *apiServer) change(method, path string, body any) {
	s.t.Helper()
	if _, err := s.try(method, path, body); err != nil {
		s.t.Fatalf("%s: %s %s: %v", s.name, method, path, err)
	}
}

// try makes a change, again until it is made. It returns the number of attempts that failed. After an attempt with an
// unknown outcome, an object that exists, or is gone, is one that this attempt has created or deleted.
func (s *apiServer) try(method, path string, body any) (failed int64, err error) {
	made := map[string]int{http.MethodPost: http.StatusConflict, http.MethodDelete: http.StatusNotFound}[method]
	for deadline := time.Now().Add(writeLimit); ; time.Sleep(50 * time.Millisecond) {
		if _, err = s.call(method, path, body); err == nil {
			return failed, nil
		}
		if failed > 0 && isStatus(err, made) {
			return failed, nil
		}
		if time.Now().After(deadline) || failed == 0 && isStatus(err, made) {
			return failed, err
		}
		failed++
	}
}

// widgets is an answer with a page of objects.
type widgets struct {
	Metadata struct{ ResourceVersion, Continue string }
	Items    []struct {
		Metadata struct{ Name string }
		Spec     struct{ Number int64 }
	}
}

// list returns the objects by name, and the version of the list.
func (s *apiServer) list() (numbers map[string]int64, version string) {
	s.t.Helper()
	s.eventually(writeLimit, "a list", func() (err error) {
		numbers, version, err = s.pages()
		return err
	})
	return numbers, version
}

// pages reads the list page by page.
func (s *apiServer) pages() (map[string]int64, string, error) {
	numbers := make(map[string]int64)
	for next := ""; ; {
		data, err := s.call(http.MethodGet, fmt.Sprintf("%s?limit=%d&continue=%s", collection, page, url.QueryEscape(next)), nil)
		if err != nil {
			return nil, "", err
		}
		var answer widgets
		if err := json.Unmarshal(data, &answer); err != nil {
			return nil, "", err
		}
		for _, item := range answer.Items {
			if _, twice := numbers[item.Metadata.Name]; twice {
				return nil, "", errors.New("two pages have " + item.Metadata.Name)
			}
			numbers[item.Metadata.Name] = item.Spec.Number
		}
		if next = answer.Metadata.Continue; next == "" {
			return numbers, answer.Metadata.ResourceVersion, nil
		}
	}
}

// wantAll fails the test if the list is not what was written.
func (s *apiServer) wantAll() {
	s.t.Helper()
	numbers, _ := s.list()
	if len(numbers) != *objects {
		s.t.Errorf("%s: the list has %d objects, want %d", s.name, len(numbers), *objects)
	}
	for i := range int64(*objects) {
		if number, listed := numbers[nameOf(i)]; !listed || number != i {
			s.t.Fatalf("%s: listed %s: %v, with the number %d", s.name, nameOf(i), listed, number)
		}
	}
}
