package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A recorder takes the rows of one table. It prints each row when it is measured, keeps it in the journal, and takes
// rows from there that an interrupted run has measured.
type recorder struct {
	out     io.Writer
	say     progress
	table   *table
	journal *journal // nil keeps nothing
	noise   *noise

	began, ended time.Time // of the rows, the first and the last
	usage        usage     // of the machine while the rows were measured
	kept         int       // rows that were taken from the journal
	headed       bool      // the head is printed
	failed       []error
}

// row measures all figures of one row, or takes them from the journal. What was found before something failed is
// printed too, but not kept.
func (r *recorder) row(ctx context.Context, name string, measure func(add func(target string, f figure)) error) error {
	if kept, found := r.journal.row(name); found {
		r.kept++
		r.take(kept)
		return r.print(name)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	row := rowResult{Name: name, Began: time.Now().UTC()}
	r.noise.begin()
	err := measure(func(target string, f figure) {
		row.Figures = append(row.Figures, result{target, f.name, f.unit, f.goal, f.value})
	})
	row.Usage, row.Ended = r.noise.end(), time.Now().UTC()
	r.take(row)
	if printed := r.print(name); printed != nil {
		return printed
	}
	if err != nil {
		r.failed = append(r.failed, err)
		return nil
	}
	if len(row.Figures) == 0 {
		return nil // the row is for none of the targets
	}
	if err := r.journal.keep(row); err != nil {
		return fmt.Errorf("keeping a row in the results file: %w", err)
	}
	return nil
}

// take adds a row to the table.
func (r *recorder) take(row rowResult) {
	for _, f := range row.Figures {
		r.table.add(row.Name, f.Target, f.figure())
	}
	r.usage = r.usage.plus(row.Usage)
	if r.began.IsZero() || row.Began.Before(r.began) {
		r.began = row.Began
	}
	if row.Ended.After(r.ended) {
		r.ended = row.Ended
	}
}

func (r *recorder) print(name string) error {
	r.say.clear()
	lines := r.table.linesOf(name)
	if len(lines) == 0 {
		return nil
	}
	if !r.headed {
		r.headed = true
		lines = append([][]string{r.table.head()}, lines...)
		if _, err := fmt.Fprintln(r.out); err != nil {
			return err
		}
	}
	return writeAligned(r.out, r.table.widths(), lines...)
}

// end prints how the machine was used, and returns what failed. If nothing failed, the series is finished.
func (r *recorder) end() error {
	r.say.clear()
	if s := r.usage.String(); s != "" && r.headed {
		fmt.Fprintf(r.out, "\n%s\n", s)
	}
	if len(r.failed) > 0 {
		return errors.Join(r.failed...)
	}
	return r.journal.finish()
}
