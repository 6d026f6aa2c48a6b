package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// totalLimit bounds the whole run, and scenarioLimit one scenario on one target.
const (
	totalLimit    = 2 * time.Hour
	scenarioLimit = 10 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, totalLimit)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == attackerArgument {
		attackMain(ctx, os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == memberCommand {
		if err := runMember(ctx, os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == busyArgument {
		spin(os.Stdin)
		return
	}
	b, err := configure(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = b.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	dir        string // where data folders are made; a new one if empty
	size       size
	databases  bool          // measure those instead of servers
	group      bool          // measure groups of members instead of servers alone
	onlyApart  bool          // measure groups only with their members apart
	abusive    bool          // attack a server instead
	span       time.Duration // of each attack
	built      string        // the path of our command; if it is empty, the command is built
	overloaded bool          // count the leases that are lost on a crowded machine instead
	overload   overload
	wanted     *regexp.Regexp // of scenarios
	aimed      *regexp.Regexp // of targets
	scenarios  []scenario
	targets    []*target
	trials     []trial
	setups     []setup
	say        progress
	noise      noise
}

func configure(args []string) (*bench, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	run := flags.String("run", "", "only scenarios whose name matches this `regexp`")
	only := flags.String("target", "", "only targets whose name matches this `regexp`")
	quick := flags.Bool("quick", false, "less of everything, to see that it works; the numbers are worth little")
	onDatabases := flags.Bool("databases", false, "measure leases in PostgreSQL, SQLite and on MongoDB's protocol instead, beside what one would take instead there; -run and -target choose among what is measured there")
	group := flags.Bool("group", false, "measure three members that are one group, beside three of etcd")
	kills := flags.Int("kills", 0, "with -group, kill the leader `so many` times (default 100, with -quick 3)")
	onlyApart := flags.Bool("apart", false, "with -group, measure only with the members apart")
	abusive := flags.Bool("abuse", false, "attack our server instead, and measure its memory and how it serves a neighbour meanwhile; -run chooses among the attacks")
	overloaded := flags.Bool("overload", false, "hold many names on a crowded machine instead, on SQLite, PostgreSQL and our server, and count the leases that are lost; -target chooses among these")
	span := flags.Duration("span", 0, "with -overload, how `long` a round lasts (default 5m); with -abuse, each attack (default 15s, with -quick 4s)")
	built := flags.String("server", "", "with -abuse, attack this `program` instead of building one")
	rounds := flags.Int("rounds", 0, "with -overload, how `many` rounds there are on each store (default 3)")
	dir := flags.String("dir", "", "make the data folders in this `folder`, which should be on a real disk (default the working one)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("what is %q? There are only flags; see -help", flags.Arg(0))
	}
	if *onlyApart && !*group {
		return nil, errors.New("give -group too: only members of a group are apart")
	}
	if len(slices.DeleteFunc([]bool{*group, *onDatabases, *abusive, *overloaded}, func(on bool) bool { return !on })) > 1 {
		return nil, errors.New("give one of -group, -databases, -abuse and -overload: a run measures one of them")
	}
	if *span != 0 && !*overloaded && !*abusive || *rounds != 0 && !*overloaded || *span < 0 || *rounds < 0 {
		return nil, errors.New("-span and -rounds are positive, and only for -overload; -span for -abuse, too")
	}
	wanted, err := regexp.Compile("(?i)" + *run)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	aimed, err := regexp.Compile("(?i)" + *only)
	if err != nil {
		return nil, fmt.Errorf("-target: %w", err)
	}
	b := &bench{dir: *dir, size: fullSize, databases: *onDatabases, group: *group, onlyApart: *onlyApart, abusive: *abusive, built: *built, span: abuseSpan, wanted: wanted, aimed: aimed, say: newProgress(os.Stderr)}
	b.overloaded, b.overload = *overloaded, fullOverload
	if *quick {
		b.size, b.span, b.overload = quickSize, abuseShort, quickOverload
	}
	b.span = cmp.Or(*span, b.span)
	b.overload.span = cmp.Or(*span, b.overload.span)
	b.overload.rounds = cmp.Or(*rounds, b.overload.rounds)
	if *kills > 0 {
		b.size.kills = *kills
	}
	b.scenarios = slices.DeleteFunc(scenarios(b.size), func(s scenario) bool { return !wanted.MatchString(s.name) })
	b.targets = slices.DeleteFunc(targets(), func(t *target) bool { return !aimed.MatchString(t.name) })
	b.trials = slices.DeleteFunc(trials(b.size), func(t trial) bool { return !wanted.MatchString(t.name) })
	b.setups = slices.DeleteFunc(setups(), func(s setup) bool { return !aimed.MatchString(s.name) || *onlyApart && s.members == 1 })
	if b.abusive && !slices.ContainsFunc(attacks(), func(a attack) bool { return wanted.MatchString(a.name) }) {
		return nil, errors.New("nothing is left to be measured")
	}
	if b.databases || b.abusive || b.overloaded || b.group && len(b.trials) > 0 && len(b.setups) > 0 {
		return b, nil
	}
	if b.group || len(b.scenarios) == 0 || len(b.targets) == 0 {
		return nil, errors.New("nothing is left to be measured")
	}
	return b, nil
}

// run builds, measures and prints. What was measured is printed even if something failed.
func (b *bench) run(ctx context.Context, out io.Writer) (err error) {
	parent := b.dir
	if parent == "" {
		parent = "."
	}
	dir, err := os.MkdirTemp(parent, "bench-*.data")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := describe(out, dir); err != nil {
		return err
	}
	defer b.say.clear()
	if b.databases {
		return b.measureDatabases(ctx, out, dir)
	}
	if b.overloaded {
		return b.overloads(ctx, out, dir)
	}
	if b.abusive {
		return b.abuse(ctx, out, dir, b.span)
	}
	wanted, measure := b.targets, b.measure
	if b.group {
		wanted, measure = b.members(), b.measureGroups
		if err := describeLink(ctx, out); err != nil {
			return err
		}
	}
	if err := build(ctx, dir, wanted, b.say); err != nil {
		return err
	}
	b.noise.begin()
	t, failed := measure(ctx, dir)
	others := b.noise.end()
	b.say.clear()
	fmt.Fprintln(out)
	if err := t.write(out); err != nil {
		return err
	}
	if others != "" {
		fmt.Fprintf(out, "\n%s\n", others)
	}
	return failed
}

// measure runs every scenario. Rounds of the targets alternate, so that a slow moment of the machine hits
// all of them alike.
func (b *bench) measure(ctx context.Context, dir string) (*table, error) {
	t := &table{reference: reference}
	for _, target := range b.targets {
		t.targets = append(t.targets, target.name)
	}
	var failed []error
	for i, s := range b.scenarios {
		rounds := max(s.rounds, 1)
		for round := range rounds {
			for _, target := range b.targets {
				if ctx.Err() != nil {
					return t, errors.Join(append(failed, context.Cause(ctx))...)
				}
				if target.bare && !s.onBare || target.synced && !s.writes {
					continue
				}
				b.say.line("%d/%d %s: %s, round %d of %d", i+1, len(b.scenarios), s.name, target.name, round+1, rounds)
				figures, err := b.once(ctx, dir, s, target)
				if err != nil {
					failed = append(failed, fmt.Errorf("%s: %s: %w", s.name, target.name, err))
				}
				for _, f := range figures {
					t.add(s.name, target.name, f)
				}
			}
		}
	}
	return t, errors.Join(failed...)
}

// once runs one scenario on a target that is started for it and ended after it.
func (b *bench) once(ctx context.Context, dir string, s scenario, target *target) (figures []figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit)
	defer cancel()
	server, err := target.start(ctx, dir)
	if err != nil {
		return nil, err
	}
	figures, err = s.run(ctx, server, b.size)
	err = errors.Join(err, server.stop())
	b.noise.servers.Add(int64(server.cpuTime()))
	if err != nil {
		return nil, err
	}
	return figures, nil
}
