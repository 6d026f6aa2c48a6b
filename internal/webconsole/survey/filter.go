package survey

// Filter returns the names of a survey for which sees returns true: at most a number of them. It shares the memory of this
// survey if they follow each other, as the names with one prefix do.
func (s *Survey) Filter(sees func(name string) bool, most int) *Survey {
	found := &Survey{Began: s.Began, End: s.End, Truncated: s.Truncated, Counts: Counts{WaitingKnown: true}}
	first := -1
	for i := range s.Names {
		n := &s.Names[i]
		if !sees(n.Name) {
			continue
		}
		size := len(found.Names)
		if size >= most {
			found.Truncated = true
			break
		}
		switch {
		case first < 0:
			first, found.Names = i, s.Names[i:i+1:i+1]
		case i == first+size && !copied(found.Names, s.Names[first:]):
			found.Names = s.Names[first : i+1 : i+1]
		default:
			found.Names = append(found.Names, *n) // copies the others at the first gap, because the capacity is used up
		}
		found.Counts.count(n.Info)
	}
	return found
}

// copied reports whether names have memory of their own.
func copied(names, original []Name) bool { return &names[0] != &original[0] }
