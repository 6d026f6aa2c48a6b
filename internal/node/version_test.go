package node

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A member of a cluster that another program ran before is not started until its vote hold-off is over. One that the same
// program ran, or that is new, starts at once and then holds off. A start that is cut short counts as none.
func TestMemberStaysDownForOnePromiseWhenItsProgramChanges(t *testing.T) {
	t.Parallel()
	const promise = 2 * time.Second
	q := new(quorum).prepare(t)
	start := func(ctx context.Context, program string) (*Node, error) {
		return Start(ctx, Config{Dir: q.dirs[11], Program: program, Cluster: &ClusterConfig{
			Self: 11, Members: q.ids, ClusterID: 0xc1, Transport: switchboardLink{q.s, 11}, MasterLease: promise,
		}})
	}
	for _, c := range []struct {
		what, program string
		down          bool
	}{
		{"a new directory", "one", false},
		{"the same program", "one", false},
		{"another program", "two", true},
		{"that program again", "two", false},
		{"a program that is not known", "", false},
		{"the former program", "one", true},
	} {
		if c.down {
			ctx, cancel := context.WithTimeout(t.Context(), promise/4)
			if n, err := start(ctx, c.program); err == nil {
				t.Errorf("%s: it starts before the promise has ended", c.what)
				n.Stop(t.Context())
			}
			cancel()
		}
		n, err := start(t.Context(), c.program)
		for deadline := time.Now().Add(20 * time.Second); err != nil && strings.Contains(err.Error(), "is in use") && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // the start that was cut short has yet to close the directory
			n, err = start(t.Context(), c.program)
		}
		if err != nil {
			t.Fatal(err)
		}
		st, err := n.Cluster(t.Context())
		if err != nil || (st.HoldOff == 0) != c.down {
			t.Errorf("%s: the vote hold-off lasts for %v more, %v", c.what, st.HoldOff, err)
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
