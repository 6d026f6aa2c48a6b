package replica

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// A member that begins to lead before it has promises has forwarded renewals and asked about reads before. It answers
// them once a round has confirmed it.
func TestLeaderWithoutAuthorityAnswersAfterARound(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.pass(time.Second)
	g.down[old] = true
	g.cut = func(m Message) bool {
		if m.Lease.Grant != nil {
			*m.Lease.Grant = masterlease.Grant{} // it is worth nothing
		}
		return false
	}
	serving := uint64(0)
	for i := 0; serving == 0; i++ {
		if i == 2000 {
			t.Fatal("no member takes over")
		}
		for _, id := range g.ids {
			switch {
			case id == old:
			case g.members[id].replica.Serving():
				serving = id
			case i%40 == 0: // the question is given up after a while
				g.step(id, Renewal{ID: uint64(1000 + i), Leases: []lessor.ID{7}}, Read{ID: uint64(5000 + i)})
			}
		}
		g.pass(5 * time.Millisecond)
	}
	if r := g.members[serving].replica; r.Authority().Holds(g.members[serving].clock.Now()) {
		t.Fatal("there is authority without a promise")
	}
	renewed, read := false, false
	for _, effect := range g.replies[serving] {
		switch e := effect.(type) {
		case Renewed:
			renewed = renewed || e.Leases[0].Err == lessor.ErrNotFound
		case ReadAt:
			read = true
		}
	}
	if !renewed || !read {
		t.Errorf("the new leader answered renewals %v and reads %v of before: %v", renewed, read, g.replies[serving])
	}
}
