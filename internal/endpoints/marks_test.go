package endpoints_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Of all keys, a list has those of the names that begin with the prefix and follow the last one, in order.
func TestMarksOfNamesWithAPrefixAreListed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("ab/.é")), 1, 4, -1)
		root := rapid.SampledFrom([]string{"", "a/", "ab/"}).Draw(t, "root")
		prefix := rapid.OneOf(rapid.Just(""), name).Draw(t, "prefix")
		after := rapid.OneOf(rapid.Just(""), name).Draw(t, "after")
		names := rapid.SliceOfNDistinct(name, 0, 12, rapid.ID).Draw(t, "names")
		slices.Sort(names)
		first, end := endpoints.MarkRange(root, prefix, after)
		var found [][]byte
		var want []string
		for _, n := range names {
			key := []byte(backend.MarkPrefix + n)
			if bytes.Compare(key, first) >= 0 && bytes.Compare(key, end) < 0 {
				found = append(found, key)
			}
			if own, found := strings.CutPrefix(n, root); found && strings.HasPrefix(own, prefix) && own > after {
				want = append(want, own)
			}
		}
		var got []string
		for _, key := range found {
			m := endpoints.ReadMarks(root, []*mvccpb.KeyValue{{Key: key, Value: []byte("5 7")}})[0]
			got = append(got, m.Name)
			if invalid := backend.CheckName(m.Name) != nil; (m.Err != nil) != invalid || !invalid && m.Mark != (backend.Mark{Tick: backend.TickNumber(7), Token: 5}) {
				t.Errorf("%+v", m)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestMarkThatCannotBeReadIsListed(t *testing.T) {
	m := endpoints.ReadMarks("a/", []*mvccpb.KeyValue{{Key: []byte(backend.MarkPrefix + "a/n"), Value: []byte("noon")}})[0]
	if m.Name != "n" || !errors.Is(m.Err, backend.ErrCorrupt) || !strings.Contains(m.Err.Error(), "correct the key /leasekeeper/marks/a/n") {
		t.Errorf("%+v", m)
	}
}
