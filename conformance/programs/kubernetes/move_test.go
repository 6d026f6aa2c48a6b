package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

const (
	// moved is the number of objects that move.
	moved = 300

	// records is the prefix of the records of API servers' addresses, which end with leases.
	records = "/registry/apiextensions.kubernetes.io/peerserverleases/"

	// addressTTL is the flag of an API server for the TTL of its record. That must outlast the steps up to the snapshot.
	addressTTL = "--address-ttl=40s"

	// eventKey is a key as an API server writes it for an event, which ends with a lease of an hour and some minutes.
	eventKey = "/registry/events/default/started"
	eventTTL = 3780
)

// The objects of an API server move from etcd by the steps of docs/how-to/kubernetes.md. Each keeps its content and its version.
// Lists and watches of before the move end with status 410, and later ones miss nothing. Updates on versions of before the move
// succeed. Keys with a lease move too, and end with it.
func TestObjectsMoveFromEtcd(t *testing.T) {
	suite.Need(t, "kubernetes")
	binary := buildAPIServer(t)
	etcd := cluster.Start(t, cluster.Etcd, 3, "--watch-progress-notify-interval=5s")
	m := newMove(t, etcd.Endpoints()[0])
	cached := startAPIServer(t, "with a cache", binary, etcd.Endpoints(), "--address-name=stays", addressTTL)
	plain := startAPIServer(t, "without a cache", binary, etcd.Endpoints(), "--watch-cache=false", "--address-name=goes", addressTTL)
	servers := []*apiServer{cached, plain}
	define(cached, plain)
	fill(cached)
	lease := m.putEvent(etcd.Endpoints()[0])
	var open []*watch
	for _, s := range servers {
		open = append(open, startWatch(t, s, s.objects("").version))
	}
	cached.change(http.MethodPut, collection+"/"+nameOf(0), renumbered(t, cached.objects("").items[nameOf(0)], -1))
	for _, w := range open {
		w.await("MODIFIED", 1)
	}
	before, firstPage := cached.objects(""), cached.objects("limit=100")

	for _, s := range servers {
		s.stop()
	}
	stays := m.wantRecord(etcd.Endpoints()[0], records+"stays")
	m.wantRecord(etcd.Endpoints()[0], records+"goes")
	m.save()
	etcd.End()
	m.importAndServe()
	m.grow()
	cached.start(m.endpoints(), "--address-name=stays", addressTTL)
	plain.start(m.endpoints(), "--watch-cache=false")

	for _, w := range open {
		w.awaitGone()
	}
	var fresh []*watch
	for _, s := range servers {
		fresh = append(fresh, startWatch(t, s, s.wantMoved(before)))
		s.wantGone("resourceVersionMatch=Exact&resourceVersion=" + before.version)
		s.wantGone("limit=100&continue=" + url.QueryEscape(firstPage.next))
	}
	updateAll(cached, before)
	for _, w := range fresh {
		w.await("MODIFIED", moved)
	}
	for i := range int64(moved) {
		plain.change(http.MethodDelete, collection+"/"+nameOf(i), nil)
	}
	for _, w := range fresh {
		w.await("DELETED", moved)
		w.end()
	}
	m.wantLeases(stays, lease)

	// The member with the imported directory is one of three.
	m.members[0].process.Kill()
	cached.change(http.MethodPost, collection, widget(0))
	if found, _ := plain.list(); len(found) != 1 {
		t.Errorf("without the first member, %d objects were found, want 1", len(found))
	}
}

// fill creates the objects, and changes every third one.
func fill(s *apiServer) {
	s.t.Helper()
	for i := range int64(moved) {
		s.change(http.MethodPost, collection, widget(i))
	}
	for name, object := range s.objects("").items {
		if i, err := strconv.Atoi(name[len(name)-5:]); err == nil && i%3 == 0 {
			s.change(http.MethodPut, collection+"/"+name, renumbered(s.t, object, 1000+i))
		}
	}
}

// renumbered returns an object with another number, in the version that it has.
func renumbered(t *testing.T, object json.RawMessage, number int) any {
	t.Helper()
	var changed map[string]any
	if err := json.Unmarshal(object, &changed); err != nil {
		t.Fatal(err)
	}
	changed["spec"] = map[string]any{"number": number}
	return changed
}

// updateAll changes all objects on the versions of before the move. A second change on the same version is a conflict.
func updateAll(s *apiServer, before listed) {
	s.t.Helper()
	for name, object := range before.items {
		changed := renumbered(s.t, object, -2)
		if _, err := s.call(http.MethodPut, collection+"/"+name, changed); err != nil {
			s.t.Errorf("update of %s on its version of before the move: %v", name, err)
		}
		if _, err := s.call(http.MethodPut, collection+"/"+name, changed); !isStatus(err, http.StatusConflict) {
			s.t.Errorf("second update of %s on its version of before the move: %v, want a conflict", name, err)
		}
	}
}

// listed is a list as the API server sent it.
type listed struct {
	version, next string
	items         map[string]json.RawMessage // by name
}

// objects lists with the parameters of a query.
func (s *apiServer) objects(query string) listed {
	s.t.Helper()
	data, err := s.call(http.MethodGet, collection+"?"+query, nil)
	if err != nil {
		s.t.Fatalf("%s: list with %q: %v", s.name, query, err)
	}
	var answer struct {
		Metadata struct{ ResourceVersion, Continue string }
		Items    []json.RawMessage
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		s.t.Fatal(err)
	}
	l := listed{answer.Metadata.ResourceVersion, answer.Metadata.Continue, make(map[string]json.RawMessage)}
	for _, item := range answer.Items {
		var object struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(item, &object); err != nil {
			s.t.Fatal(err)
		}
		l.items[object.Metadata.Name] = item
	}
	return l
}

// wantMoved fails the test unless lists have the objects of before the move, at any version that a list may ask for. It returns
// the version of the newest list.
func (s *apiServer) wantMoved(before listed) (version string) {
	s.t.Helper()
	for _, query := range []string{"resourceVersion=0", "resourceVersion=" + before.version, ""} {
		now := s.objects(query)
		if len(before.items) != moved || len(now.items) != moved {
			s.t.Errorf("%s: %d objects, and %d before the move, want %d", s.name, len(now.items), len(before.items), moved)
		}
		for name, object := range before.items {
			if !bytes.Equal(now.items[name], object) {
				s.t.Errorf("%s: list with %q: %s is\n%s, and was\n%s", s.name, query, name, now.items[name], object)
			}
		}
		version = now.version
	}
	if number(s.t, version) <= number(s.t, before.version) {
		s.t.Errorf("%s: the list has the version %s, and had %s", s.name, version, before.version)
	}
	return version
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wantGone fails the test if the API server does not refuse a list of before the move.
func (s *apiServer) wantGone(query string) {
	s.t.Helper()
	if _, err := s.call(http.MethodGet, collection+"?"+query, nil); !isStatus(err, http.StatusGone) {
		s.t.Errorf("%s: list with %q: %v, want status %d", s.name, query, err, http.StatusGone)
	}
}

// awaitGone waits until the API server has ended a watch because its version is too old.
func (w *watch) awaitGone() {
	w.s.t.Helper()
	w.s.eventually(writeLimit, "the watch of before the move has to begin again", func() error {
		if err := w.failure(); !errors.Is(err, errGone) {
			return fmt.Errorf("failure: %w", err)
		}
		return nil
	})
}
