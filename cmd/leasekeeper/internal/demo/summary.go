package demo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// tenureRows returns the table of all tenures. The record is locked.
func (s *scenario) tenureRows() [][]string {
	rows := [][]string{{"TOKEN", "HOLDER", "FROM", "WORKED UNTIL", "RIGHT ENDED", "WRITES", "HOW IT ENDED"}}
	for _, t := range s.record.tenures {
		rows = append(rows, []string{
			t.token.String(), t.holder, s.seconds(t.from), s.seconds(t.stopped), s.seconds(t.over),
			strconv.Itoa(t.writes), t.how,
		})
	}
	return rows
}

// seconds returns the seconds from the beginning to an instant.
func (s *scenario) seconds(at clock.Instant) string {
	return fmt.Sprintf("%.3f", at.Elapsed(s.began).Seconds())
}

// printSummary prints the tenures and the facts. It returns an error that names the facts which do not hold.
func (s *scenario) printSummary(rows [][]string, facts []fact) error {
	s.timeline.settle()
	s.print("\n")
	if err := console.PrintTable(s.out, rows); err != nil {
		return fmt.Errorf("the demo cannot print: %w", err)
	}
	s.print("\n")
	var broken []string
	for _, f := range facts {
		mark := "ok"
		if !f.holds {
			mark = "BROKEN"
			broken = append(broken, f.name)
		}
		s.print("%-6s  %-29s  %s\n", mark, f.name, f.value)
	}
	if len(broken) > 0 {
		return command.Failed("these facts do not hold: %s; please report this with the output above", strings.Join(broken, ", "))
	}
	return nil
}

// shortened returns text, cut off if it does not fit into the column of events.
func shortened(text string) string {
	if letters := []rune(text); len(letters) > eventColumns {
		return string(letters[:eventColumns-1]) + "…"
	}
	return text
}

// trimmed returns a line without the spaces at its end.
func trimmed(line string) string { return strings.TrimRight(line, " ") }
