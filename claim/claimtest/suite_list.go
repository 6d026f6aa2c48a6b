package claimtest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

var listTests = []test{
	{"Empty", "", testEmptyList},
	{"ByBytes", "", testListByBytes},
	{"Prefixes", "", testPrefixes},
	{"Pages", "", testPages},
	{"HasTombstones", "", testListHasTombstones},
}

// namesIn returns the names of a list.
func (s *suite) namesIn(store claim.Store, prefix, after string, limit int) []string {
	s.Helper()
	all, err := store.List(s.Context(), prefix, after, limit)
	if err != nil {
		s.Fatalf("List(%q, %q, %d): %v", prefix, after, limit, err)
	}
	var names []string
	for _, f := range all {
		if f.Err != nil || !f.Record.Exists() {
			s.Fatalf("List(%q, %q, %d): has %+v", prefix, after, limit, f)
		}
		names = append(names, f.Record.Name)
	}
	return names
}

func testEmptyList(s *suite) {
	store := s.open()
	for _, prefix := range []string{"", "jobs/", "%"} {
		if names := s.namesIn(store, prefix, "", 10); len(names) != 0 {
			s.Errorf("there is no record, and a list has %q", names)
		}
	}
}

// putAll creates a record of each of the odd names, in an order that is not sorted.
func (s *suite) putAll(store claim.Store) (sorted []string) {
	s.Helper()
	sorted = slices.Sorted(slices.Values(oddNames))
	for i := range sorted {
		s.put(store, sorted[(i*7+3)%len(sorted)])
	}
	return sorted
}

func testListByBytes(s *suite) {
	a, b := s.open(), s.open()
	sorted := s.putAll(a)
	if names := s.namesIn(b, "", "", len(sorted)+1); !slices.Equal(names, sorted) {
		s.Errorf("a list of all has\n%q, and should have\n%q", names, sorted)
	}
}

// wanted returns the names that a list should have.
func wanted(sorted []string, prefix, after string, limit int) (names []string) {
	for _, name := range sorted {
		if strings.HasPrefix(name, prefix) && name > after && len(names) < limit {
			names = append(names, name)
		}
	}
	return names
}

// No character of a prefix is a wildcard, and case matters.
func testPrefixes(s *suite) {
	store := s.open()
	sorted := s.putAll(store)
	prefixes := append([]string{"", "a\\\\", "%%", "__", "none", "X", "x/", "\uff5f", strings.Repeat("x", backend.MaxName)}, sorted...)
	for _, prefix := range prefixes {
		if names, want := s.namesIn(store, prefix, "", 100), wanted(sorted, prefix, "", 100); !slices.Equal(names, want) {
			s.Errorf("a list of prefix %q has\n%q, and should have\n%q", prefix, names, want)
		}
	}
}

func testPages(s *suite) {
	store := s.open()
	sorted := s.putAll(store)
	for _, prefix := range []string{"", "a", "x", "\U0001F600"} {
		for limit := 1; limit <= len(sorted)+1; limit = limit*2 + 1 {
			var names []string
			for after := ""; ; after = names[len(names)-1] {
				page := s.namesIn(store, prefix, after, limit)
				names = append(names, page...)
				if len(page) > limit {
					s.Fatalf("a page of %d has %d", limit, len(page))
				}
				if len(page) < limit || len(names) > len(sorted) {
					break
				}
			}
			if want := wanted(sorted, prefix, "", 100); !slices.Equal(names, want) {
				s.Errorf("pages of %d of prefix %q have\n%q, and should have\n%q", limit, prefix, names, want)
			}
		}
	}
	// A page may begin after a string that is no existing name and does not begin with the prefix.
	for _, after := range []string{"!", "A", "Z", "a/", "a\u0300", "b", "y", "世", "\U0001F601", strings.Repeat("x", backend.MaxName)} {
		for _, prefix := range []string{"", "a", "x"} {
			if names, want := s.namesIn(store, prefix, after, 4), wanted(sorted, prefix, after, 4); !slices.Equal(names, want) {
				s.Errorf("a list of prefix %q after %q has\n%q, and should have\n%q", prefix, after, names, want)
			}
		}
	}
}

func testListHasTombstones(s *suite) {
	store := s.open()
	tombstone := claim.Record{Name: "b", Token: 5, Op: claim.NewOp(), Domain: "some machine"}
	records := []claim.Record{s.put(store, "a"), tombstone, s.put(store, "c")}
	s.mustSwap(store, claim.Op{}, tombstone)
	if _, err := store.RaiseFloor(s.Context(), 3); err != nil {
		s.Fatal(err)
	}
	all, err := store.List(s.Context(), "", "", 10)
	if err != nil || len(all) != len(records) {
		s.Fatalf("List: %+v, %v", all, err)
	}
	slices.SortFunc(records, func(a, b claim.Record) int { return cmp.Compare(a.Name, b.Name) })
	for i, f := range all {
		s.same("in a list", f.Record, records[i])
		if f.Floor != 3 {
			s.Errorf("%s has floor %d, not 3", f.Record.Name, f.Floor)
		}
	}
}
