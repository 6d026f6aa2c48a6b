package roster

import (
	"errors"
	"slices"
	"testing"
)

// These URLs lead to one place each, and to another place than those of the other lists.
var spellings = [][]string{
	{"http://host:2380", "https://host:2380", "host:2380", "http://HOST:2380", "https://Host.:02380", "http://host:2380/"},
	{"http://host:2381", "https://host:2381"},
	{"http://10.0.0.7:2380", "https://10.0.0.7:2380", "http://[::ffff:10.0.0.7]:2380", "http://[::FFFF:a00:7]:02380"},
	{"http://[::1]:2380", "https://[0:0:0:0:0:0:0:1]:2380"},
	{"http://10.0.0.70:2380"},
}

func TestAddressesInAnySpellingAreTheSame(t *testing.T) {
	var seen []string
	for _, urls := range spellings {
		for _, url := range urls {
			if got := Address(url); got != Address(urls[0]) {
				t.Errorf("%s is %s, and %s is %s", urls[0], Address(urls[0]), url, got)
			}
		}
		if slices.Contains(seen, Address(urls[0])) {
			t.Errorf("%s is the address of two places", Address(urls[0]))
		}
		seen = append(seen, Address(urls[0]))
	}
}

// A leader adds no member at an address that another member has in another spelling, and moves none there. A log that has
// such a change is applied, as earlier programs applied it.
func TestAddressOfAnotherMemberIsRefusedInAnySpelling(t *testing.T) {
	for i, urls := range spellings {
		list := Founded([]Member{{ID: 1, Incarnation: 1, PeerURLs: []string{"http://first:1", urls[0]}}, {ID: 2, Incarnation: 2}})
		for _, other := range spellings {
			for _, url := range other {
				var want error
				if other[0] == urls[0] {
					want = ErrPeerURLExists
				}
				for _, c := range []Change{
					{Add, Member{ID: 9, Learner: true, PeerURLs: []string{"http://free:1", url}}},
					{Update, Member{ID: 2, PeerURLs: []string{"http://free:1", url}}},
				} {
					if err := list.Check(c, view(2)); !errors.Is(err, want) {
						t.Errorf("%v at %s beside %s: %v, and not %v", c.Kind, url, urls[0], err, want)
					}
					if _, err := list.Apply(c); err != nil && url != urls[0] {
						t.Errorf("an entry with %s beside %s is not applied: %v", url, urls[0], err)
					}
				}
				if err := list.Check(Change{Update, Member{ID: 1, PeerURLs: []string{url}}}, view(2)); err != nil {
					t.Errorf("list %d: a member may not change the spelling of its own address to %s: %v", i, url, err)
				}
			}
		}
	}
}
