package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A series is a run with all its resumptions. Rows of another series are never reused: they were measured of other
// code, on another machine, or with other flags.
type series struct {
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Flags   string `json:"flags"`
}

// The kinds of entries of a journal. A beginning voids all earlier rows of its series.
const (
	entryBegin = "begin"
	entryRow   = "row"
	entryEnd   = "end"
)

// An entry is one line of the results file.
type entry struct {
	series
	Kind string     `json:"kind"`
	Time time.Time  `json:"time"`
	Row  *rowResult `json:"row,omitempty"` // of entryRow only
}

// A rowResult is everything that was measured of one row: all its figures on all targets in all rounds.
type rowResult struct {
	Name    string    `json:"name"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Usage   usage     `json:"usage"` // of the machine, meanwhile
	Figures []result  `json:"figures"`
}

// A result is one figure of one target in one round.
type result struct {
	Target string  `json:"target"`
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Goal   string  `json:"goal,omitempty"`
	Value  float64 `json:"value"`
}

func (r result) figure() figure {
	return figure{name: r.Name, unit: r.Unit, goal: r.Goal, value: r.Value}
}

// A journal keeps the rows of one series in the results file, which it shares with other series. A nil journal keeps
// nothing.
type journal struct {
	path string
	series
	rows map[string]rowResult // measured earlier
	// finished means that the series has all its rows.
	finished bool
	// damaged counts the lines of the file that could not be read.
	damaged int
}

// defaultResults is the results file if no flag names one.
func defaultResults() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the results file: %w; give -results FILE", err)
	}
	return filepath.Join(dir, "leasekeeper-bench", "results.jsonl"), nil
}

// openJournal reads what the file has of a series. A missing file has nothing.
func openJournal(path string, s series) (*journal, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	j := parseJournal(data, s)
	j.path = path
	return j, nil
}

// parseJournal reads the rows of a series from a file. It skips lines that it cannot read: a run that is killed while it
// writes leaves half a line.
func parseJournal(data []byte, s series) *journal {
	j := &journal{series: s, rows: map[string]rowResult{}}
	for line := range bytes.Lines(data) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e entry
		if json.Unmarshal(line, &e) != nil || !e.valid() {
			j.damaged++
			continue
		}
		if e.series != s {
			continue
		}
		switch e.Kind {
		case entryBegin:
			clear(j.rows)
			j.finished = false
		case entryRow:
			j.rows[e.Row.Name] = *e.Row
		case entryEnd:
			j.finished = true
		}
	}
	return j
}

func (e entry) valid() bool {
	switch e.Kind {
	case entryBegin, entryEnd:
		return true
	case entryRow:
		return e.Row != nil && e.Row.Name != "" && len(e.Row.Figures) > 0
	default:
		return false
	}
}

// row returns a row that was measured earlier.
func (j *journal) row(name string) (rowResult, bool) {
	if j == nil {
		return rowResult{}, false
	}
	r, found := j.rows[name]
	return r, found
}

// begin voids all rows of the series.
func (j *journal) begin() error {
	if j == nil {
		return nil
	}
	clear(j.rows)
	j.finished = false
	return j.write(entry{Kind: entryBegin})
}

// keep adds a row.
func (j *journal) keep(r rowResult) error {
	if j == nil {
		return nil
	}
	return j.write(entry{Kind: entryRow, Row: &r})
}

// finish notes that the series has all its rows.
func (j *journal) finish() error {
	if j == nil || j.finished {
		return nil
	}
	j.finished = true
	return j.write(entry{Kind: entryEnd})
}

// write appends one line. If the file ends with half a line, the new one begins after a line break.
func (j *journal) write(e entry) (err error) {
	e.series, e.Time = j.series, time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	line = append(line, '\n')
	if broken, err := endsWithinLine(f); err != nil {
		return err
	} else if broken {
		line = append([]byte{'\n'}, line...)
	}
	_, err = f.Write(line)
	return err
}

func endsWithinLine(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return last[0] != '\n', err
}
