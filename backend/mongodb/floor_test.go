package mongodb

import (
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// A record may have been created after a collection removed the one before it and raised the floor. An older
// floor together with such a record would lead to a token that was granted already.
func TestFloorIsReadAfterTheRecords(t *testing.T) {
	var floor atomic.Int64
	asked := make(chan struct{}, 8)
	p := newPeer(t, ofASet, func(name string, body bson.Raw) bson.D {
		switch from, _ := body.Lookup("find").StringValueOK(); from {
		case "leasekeeper_namespaces":
			asked <- struct{}{}
			return cursor(namespace{ID: DefaultNamespace, Mode: byWriter, Version: version, Floor: floor.Load()})
		case "leasekeeper_leases":
			select {
			case <-asked: // too early
			case <-time.After(100 * time.Millisecond):
			}
			floor.Store(100)
			return cursor()
		}
		return nil
	})
	s := p.openStore(Config{})
	for len(asked) > 0 {
		<-asked
	}
	f, err := s.Get(t.Context(), "jobs/x")
	if err != nil || f.Floor != 100 {
		t.Errorf("a read: floor %d, %v", f.Floor, err)
	}
	floor.Store(0)
	var read backend.Token
	p.answers(func(name string, body bson.Raw) bson.D {
		switch from, _ := body.Lookup("find").StringValueOK(); from {
		case "leasekeeper_namespaces":
			return cursor(namespace{ID: DefaultNamespace, Mode: byWriter, Version: version, Floor: floor.Load()})
		case "leasekeeper_leases":
			floor.Store(100)
			raw, err := s.document(claim.Swap{Record: testRecord("jobs/x")})
			if err != nil {
				t.Error(err)
			}
			return cursor(raw)
		}
		return nil
	})
	list, err := s.List(t.Context(), "jobs/", "", 10)
	if err == nil && len(list) == 1 {
		read = list[0].Floor
	}
	if err != nil || read != 100 {
		t.Errorf("a list of %d: floor %d, %v", len(list), read, err)
	}
}
