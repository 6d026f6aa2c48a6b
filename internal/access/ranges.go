package access

import (
	"cmp"
	"slices"
)

// ranges is a set of keys: intervals in order, with gaps between them. It is immutable.
type ranges []interval

// interval is the keys from begin to before end. An empty end is after all keys.
type interval struct{ begin, end string }

// rangesOf returns the keys on which some permissions allow what the kind allows.
func rangesOf(permissions []Permission, kind Kind) ranges {
	var all ranges
	for _, p := range permissions {
		if p.Kind == kind || p.Kind == ReadWrite {
			if i := intervalOf(p.Key, p.End); i.end == "" || i.begin < i.end {
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.begin, b.begin) })
	merged := all[:0]
	for _, i := range all {
		if last := len(merged) - 1; last >= 0 && !merged[last].endsBefore(i.begin) {
			merged[last].end = later(merged[last].end, i.end)
		} else {
			merged = append(merged, i)
		}
	}
	return slices.Clip(merged)
}

// intervalOf returns the interval of a request or permission in etcd's notation.
func intervalOf(key, end string) interval {
	switch end {
	case "":
		return interval{key, key + "\x00"}
	case "\x00":
		return interval{key, ""}
	}
	return interval{key, end}
}

// endsBefore reports whether there is a gap between the interval and a later key.
func (i interval) endsBefore(key string) bool { return i.end != "" && i.end < key }

// later returns the later of two ends.
func later(a, b string) string {
	if a == "" || b == "" {
		return ""
	}
	return max(a, b)
}

// reach returns the end of the interval that contains a key. ok is false if none does.
func (s ranges) reach(key string) (end string, ok bool) {
	i, found := slices.BinarySearchFunc(s, key, func(i interval, key string) int { return cmp.Compare(i.begin, key) })
	if !found {
		i--
	}
	if i < 0 || s[i].end != "" && s[i].end <= key {
		return "", false
	}
	return s[i].end, true
}

// validRange reports whether a permission may have such a range.
func validRange(key, end string) bool {
	return key != "" && (end == "" || end == "\x00" || key < end)
}

// allowsKeys reports whether a user's roles together allow all keys of a range. A range that has no keys counts as its first
// one, as in etcd.
func (p *Policy) allowsKeys(user *User, key, end []byte, kind Kind) bool {
	if len(end) == 0 {
		_, ok := p.reach(user, string(key), kind)
		return ok
	}
	wanted := intervalOf(string(key), string(end))
	for at := wanted.begin; ; {
		next, ok := p.reach(user, at, kind)
		if !ok || next == "" {
			return ok
		}
		if wanted.end != "" && next >= wanted.end {
			return true
		}
		at = next
	}
}

// reach returns how far beyond a key a user's single roles reach.
func (p *Policy) reach(user *User, key string, kind Kind) (furthest string, ok bool) {
	for _, name := range user.Roles {
		i, found := p.findRole(name)
		if !found {
			continue
		}
		set := p.roles[i].read
		if kind == Write {
			set = p.roles[i].write
		}
		if end, covers := set.reach(key); covers && !ok {
			furthest, ok = end, true
		} else if covers {
			furthest = later(furthest, end)
		}
	}
	return furthest, ok
}
