package survey

import (
	"slices"
	"sort"
	"strings"
)

// State selects names by what holds of them.
type State string

// The states by which names can be selected.
const (
	Any       State = ""
	Held      State = "held"
	Contended State = "waiting" // held while other claims wait
	Pinned    State = "pinned"
	Free      State = "free"
	Unread    State = "unreadable"
)

// Is reports whether the state holds of a name.
func (s State) Is(n *Name) bool {
	switch s {
	case Any:
		return true
	case Unread:
		return n.Err != nil
	case Free:
		return n.Err == nil && !n.Held
	}
	return n.Held && (s == Held || s == Contended && n.Waiting > 0 || s == Pinned && n.Pinned != "")
}

// Query selects one page of the names of a survey.
type Query struct {
	// Text must be part of the name, of its holder's id, or of its host. Empty selects all.
	Text  string
	State State
	// Holder and Host select the names of one holder or of the holders on one host. Empty selects all.
	Holder, Host string
	// From is the number of matching names before the page.
	From int
	// Most is the largest number of names on the page.
	Most int
}

func (q *Query) selects(n *Name) bool {
	if !q.State.Is(n) || q.Holder != "" && (!n.Held || n.Holder.ID != q.Holder) || q.Host != "" && (!n.Held || n.Holder.Card.Host != q.Host) {
		return false
	}
	return q.Text == "" || strings.Contains(n.Name, q.Text) ||
		n.Held && (strings.Contains(n.Holder.ID, q.Text) || strings.Contains(n.Holder.Card.Host, q.Text))
}

// Page is a part of the names that a query selects.
type Page struct {
	Names []Name
	// From is the number of names before the page, which is less than asked for if there are fewer names.
	From int
	// Total is the number of names that the query selects.
	Total int
}

// Select returns the page of a query.
func (s *Survey) Select(q Query) Page {
	var p Page
	var last []Name // the last full page before From, in case From is beyond the end
	for i := range s.Names {
		n := &s.Names[i]
		if !q.selects(n) {
			continue
		}
		if p.Total >= q.From && len(p.Names) < q.Most {
			p.Names = append(p.Names, *n)
		} else if p.Total < q.From {
			if p.Total%q.Most == 0 {
				last = last[:0]
			}
			last = append(last, *n)
		}
		p.Total++
	}
	p.From = q.From
	if len(p.Names) == 0 && p.Total > 0 {
		p.Names, p.From = last, p.Total-len(last)
	}
	return p
}

// Longest returns the names with the longest queues, the longest first.
func (s *Survey) Longest(most int) []Name {
	var found []Name
	for i := range s.Names {
		if Contended.Is(&s.Names[i]) {
			found = insert(found, s.Names[i], most, func(a, b *Name) bool { return a.Waiting > b.Waiting })
		}
	}
	return found
}

// insert puts a name into a short sorted list that keeps its first names.
func insert(list []Name, n Name, most int, before func(a, b *Name) bool) []Name {
	at := sort.Search(len(list), func(i int) bool { return before(&n, &list[i]) })
	if at == most {
		return list
	}
	if len(list) == most {
		list = list[:most-1]
	}
	return slices.Insert(list, at, n)
}
