package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// scores are the ratios of a comparison, by row and round.
type scores struct {
	names  []string
	ratios [][]float64
}

func newScores(rows []comparison, rounds int) *scores {
	s := &scores{}
	for _, r := range rows {
		s.names = append(s.names, r.name)
		s.ratios = append(s.ratios, make([]float64, rounds))
	}
	return s
}

// write prints a line for each row: its ratios, their median, and whether that is below the threshold.
func (s *scores) write(w io.Writer, threshold float64) error {
	widths := []int{0, 0}
	head := []string{"", ""}
	for round := range s.ratios[0] {
		head, widths = append(head, fmt.Sprint(round+1)), append(widths, len("0.000"))
	}
	head, widths = append(head, "median", ""), append(widths, len("median"), 0)
	lines := [][]string{head}
	for i, name := range s.names {
		widths[0] = max(widths[0], utf8.RuneCountInString(name))
		line := []string{name, ""}
		for _, r := range s.ratios[i] {
			line = append(line, fmt.Sprintf("%.3f", r))
		}
		m, verdict := median(s.ratios[i]), ""
		if m < threshold {
			verdict = fmt.Sprintf("below %g", threshold)
		}
		lines = append(lines, append(line, fmt.Sprintf("%.3f", m), verdict))
	}
	return writeAligned(w, widths, lines...)
}

// below is an error that names the rows whose median is below the threshold.
func (s *scores) below(threshold float64) error {
	var slow []string
	for i, name := range s.names {
		if m := median(s.ratios[i]); m < threshold {
			slow = append(slow, fmt.Sprintf("%s (%.3f)", name, m))
		}
	}
	if len(slow) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d rows have a median ratio below %g: %s; measure these again with -run before you conclude that the build is slower",
		len(slow), len(s.names), threshold, strings.Join(slow, ", "))
}
