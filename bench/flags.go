package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// settings are what the flags say.
type settings struct {
	run, target string // regular expressions of scenarios and targets
	quick       bool
	dir         string // where data directories are made; a new one if empty

	databases  bool          // measure those instead of servers
	cluster    bool          // measure clusters instead of single servers; with board, as well
	apart      bool          // measure clusters only with their members apart
	kills      int           // of the leader of a cluster; 0 is the default
	streamed   int           // leases whose state streams to a member; 0 is the default
	abusive    bool          // attack a server instead
	overloaded bool          // count the leases that are lost on a crowded machine instead
	starts     bool          // measure how long our command takes next to flock instead
	rounds     int           // of an overload; 0 is the default
	span       time.Duration // of an attack, or a round of an overload
	built      string        // the path of our command; if it is empty, the command is built

	results string // the path of the results file
	fresh   bool   // reuse no row of the results file

	board bool   // write the board into page
	page  string // the path of the page

	against   string  // the commit or the program to compare with
	threshold float64 // the least median of a row that is compared
}

// defaultPage holds the board.
var defaultPage = filepath.Join("..", "docs", "performance.md")

// bench is one run.
type bench struct {
	settings
	size      size
	overload  overload
	wanted    *regexp.Regexp // of scenarios
	aimed     *regexp.Regexp // of targets
	scenarios []scenario
	targets   []*target
	trials    []trial
	setups    []setup
	say       progress
	noise     noise
	version   string // of the measured build; run finds it out if it is empty
	machine   string
	warned    bool // that rows are not kept
}

const usageText = `Measures Leasekeeper, etcd, and gRPC servers that do nothing, under the same load on this machine.

  go run .                   single servers
  go run . -cluster          three members that are one cluster
  go run . -databases        names in databases
  go run . -board            single servers, and write the board in docs/performance.md
  go run . -against COMMIT   twelve rows of this tree and of another commit, in seven rounds
  go run . -abuse            attacks on our server
  go run . -overload         leases on a crowded machine
  go run . -starts           leasekeeper run next to flock

A row is printed when it is measured, and kept in the results file:
  %s
An interrupted run resumes: the same command, at the same commit and on the same machine, measures only the rows
that are missing. -fresh measures all of them again, and so does the next run after one that measured all its rows.
Rows are not kept if the working tree differs from its commit in anything but Markdown.

Flags:
`

// parse reads the flags.
func parse(args []string) (o settings, err error) {
	results, err := defaultResults()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), usageText, cmp.Or(results, "(no cache directory: give -results)"))
		flags.PrintDefaults()
	}
	flags.StringVar(&o.run, "run", "", "measure only rows whose name matches this `regexp`; with -abuse, run only these attacks")
	flags.StringVar(&o.target, "target", "", "measure only targets whose name matches this `regexp`")
	flags.BoolVar(&o.quick, "quick", false, "measure less of everything, to see that it works; the numbers are worth little")
	flags.StringVar(&o.dir, "dir", "", "make the data directories in this `directory`, which should be on a real disk (default: the working directory)")
	flags.BoolVar(&o.databases, "databases", false, "measure leases in PostgreSQL, SQLite and on MongoDB's protocol, and the locks that people use there otherwise")
	flags.BoolVar(&o.cluster, "cluster", false, "measure clusters of three members; with -board, measure them after the single servers")
	flags.IntVar(&o.kills, "kills", 0, "with -cluster, kill the leader this `number` of times (default 100, with -quick 3)")
	flags.IntVar(&o.streamed, "streamed", 0, "with -cluster, stream the state of this `number` of leases to a member (default 1000000, with -quick 20000)")
	flags.BoolVar(&o.apart, "apart", false, "with -cluster, measure only with the members 5 ms apart")
	flags.BoolVar(&o.abusive, "abuse", false, "attack our server, and measure its memory and how it serves another client meanwhile")
	flags.BoolVar(&o.overloaded, "overload", false, "hold many names on a crowded machine, on SQLite, PostgreSQL and our server, and count the leases that are lost")
	flags.BoolVar(&o.starts, "starts", false, "measure how long leasekeeper run takes in its default store, next to flock, leasekeeper version and an empty Go program")
	flags.DurationVar(&o.span, "span", 0, "the `length` of a round of -overload (default 5m), or of an attack of -abuse (default 15s, with -quick 4s)")
	flags.IntVar(&o.rounds, "rounds", 0, "with -overload, the `number` of rounds on each store (default 3); with -against, of rounds in all (default 7, with -quick 2)")
	flags.StringVar(&o.built, "server", "", "with -abuse, -overload, -databases, -starts or -against, measure this `program` instead of building one")
	flags.StringVar(&o.results, "results", results, "keep rows in this `file`, so that an interrupted run resumes")
	flags.BoolVar(&o.fresh, "fresh", false, "measure all rows again, also those in the results file")
	flags.BoolVar(&o.board, "board", false, "measure, then write the table between the markers in -page; a run that has already measured all rows only writes")
	flags.StringVar(&o.page, "page", defaultPage, "with -board, write into this `file`")
	flags.StringVar(&o.against, "against", "", "compare this tree with a `commit`, or with a program if it is a path with a slash; fail if the median ratio of a row is below -threshold")
	flags.Float64Var(&o.threshold, "threshold", defaultThreshold, "with -against, the least median `ratio` of a row")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: give flags only, see -help", flags.Arg(0))
	}
	if o.results == "" {
		return o, cmp.Or(err, errors.New("-results names no file"))
	}
	return o, o.check()
}

// check refuses flags that do not fit each other.
func (o settings) check() error {
	modes := 0
	for _, on := range []bool{o.cluster && !o.board, o.databases, o.abusive, o.overloaded, o.starts, o.board, o.against != ""} {
		if on {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("give one of -cluster, -databases, -abuse, -overload, -starts, -board and -against (or -board with -cluster)")
	case o.apart && !o.cluster:
		return errors.New("-apart needs -cluster: only members of a cluster are apart")
	case o.span < 0 || o.rounds < 0 || o.kills < 0 || o.streamed < 0:
		return errors.New("-span, -rounds, -kills and -streamed must not be negative")
	case o.span != 0 && !o.overloaded && !o.abusive:
		return errors.New("-span needs -overload or -abuse")
	case o.rounds != 0 && !o.overloaded && o.against == "":
		return errors.New("-rounds needs -overload or -against")
	case o.board && o.quick && o.page == defaultPage:
		return errors.New("-quick is not for " + defaultPage + ": give -page with another file")
	}
	return nil
}

// flagsOf returns the mode and the flags that decide the measurements, in a fixed order.
func (o settings) flagsOf(mode string) string {
	parts := []string{mode}
	add := func(on bool, format string, args ...any) {
		if on {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(o.quick, "-quick")
	add(o.run != "", "-run %q", o.run)
	add(o.target != "", "-target %q", o.target)
	add(o.apart, "-apart")
	add(o.kills > 0, "-kills %d", o.kills)
	add(o.streamed > 0, "-streamed %d", o.streamed)
	add(o.rounds > 0, "-rounds %d", o.rounds)
	add(o.built != "", "-server %q", o.built)
	return strings.Join(parts, " ")
}

func configure(args []string) (*bench, error) {
	o, err := parse(args)
	if err != nil {
		return nil, err
	}
	b := &bench{settings: o, size: fullSize, overload: fullOverload, say: newProgress(os.Stderr)}
	if b.wanted, err = regexp.Compile("(?i)" + o.run); err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	if b.aimed, err = regexp.Compile("(?i)" + o.target); err != nil {
		return nil, fmt.Errorf("-target: %w", err)
	}
	b.span = cmp.Or(o.span, abuseSpan)
	if o.quick {
		b.size, b.overload, b.span = quickSize, quickOverload, cmp.Or(o.span, abuseShort)
	}
	b.overload.span = cmp.Or(o.span, b.overload.span)
	b.overload.rounds = cmp.Or(o.rounds, b.overload.rounds)
	b.size.kills = cmp.Or(o.kills, b.size.kills)
	b.size.streamed = cmp.Or(o.streamed, b.size.streamed)
	return b, b.choose()
}

// choose keeps the rows and targets that the flags ask for. It is an error if nothing is left.
func (b *bench) choose() error {
	b.scenarios = slices.DeleteFunc(scenarios(b.size), func(s scenario) bool { return !b.wanted.MatchString(s.name) })
	b.targets = slices.DeleteFunc(targets(), func(t *target) bool { return !b.aimed.MatchString(t.name) })
	b.trials = slices.DeleteFunc(trials(b.size), func(t trial) bool { return !b.wanted.MatchString(t.name) })
	b.setups = slices.DeleteFunc(setups(), func(s setup) bool { return !b.aimed.MatchString(s.name) || b.apart && s.members == 1 })
	servers, clusters := len(b.scenarios) > 0 && len(b.targets) > 0, len(b.trials) > 0 && len(b.setups) > 0
	left := servers
	switch {
	case b.databases, b.overloaded:
		left = true
	case b.starts:
		left = b.wanted.MatchString(startsName) && slices.ContainsFunc(startsColumns, b.aimed.MatchString)
	case b.abusive:
		left = slices.ContainsFunc(attacks(), func(a attack) bool { return b.wanted.MatchString(a.name) })
	case b.against != "":
		left = len(b.comparisons()) > 0
	case b.board && b.cluster:
		left = servers || clusters
	case b.cluster:
		left = clusters
	}
	if !left {
		return errors.New("nothing to measure: no row or no target matches -run and -target")
	}
	return nil
}
