package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The abuse suite runs each attack against a real server, from a process of its own that is held to one core,
// while a neighbour renews leases and puts keys. It prints each figure when it has measured it.

const (
	// abuseSpan is how long an attack lasts, and abuseShort the same with -quick.
	abuseSpan  = 15 * time.Second
	abuseShort = 4 * time.Second
	// abuseMemory is the memory limit of a server that is attacked.
	abuseMemory = 1 << 30
	// abuseCalm is how long a server may take after an attack to give its memory back.
	abuseCalm = time.Minute
	// abuseSlack is how much more than before the attack a server may keep of its memory.
	abuseSlack = 128 << 20
	// abuseGrace is how long an attacker may take to report after the end of its attack.
	abuseGrace = 20 * time.Second
)

// An attack is a load that is meant to do harm.
type attack struct {
	name string
	// arguments of the server besides those of every attack.
	arguments []string
	// memory is the memory limit of the server; 0 is abuseMemory.
	memory int64
	// files is the most descriptors that the server may have; 0 leaves it at what this process may have.
	files int
	// members says that the attack is on the port for members, and not on that for clients.
	members bool
	// prepare runs in this process before the attack. It may be nil.
	prepare func(ctx context.Context, addr string) error
	// flood attacks until the context ends, in a process of its own, and returns what it did. An error means that the
	// attack did not take place. A refusal by the server is no error.
	flood func(ctx context.Context, addr string) ([]figure, error)
}

// attacks are the phases of the suite, in order.
func attacks() []attack {
	return slices.Concat([]attack{{name: "no attack", flood: rest}}, memoryAttacks(), httpAttacks(), fairAttacks())
}

// rest does not attack. Its phase shows what the neighbour measures of a calm server.
func rest(ctx context.Context, _ string) ([]figure, error) {
	<-ctx.Done()
	return nil, nil
}

// abuse runs the phases. It returns an error that names every goal that was missed.
func (b *bench) abuse(ctx context.Context, out io.Writer, dir string, span time.Duration) error {
	ours := slices.DeleteFunc(targets(), func(t *target) bool { return t.name != "leasekeeper" })
	if b.built != "" {
		ours[0].binary = b.built
	} else if err := build(ctx, dir, ours, b.say); err != nil {
		return err
	}
	var failed []error
	for _, a := range attacks() {
		if !b.wanted.MatchString(a.name) {
			continue
		}
		a.memory = cmp.Or(a.memory, abuseMemory)
		p := phase{attack: a, target: ours[0], span: span, out: out}
		if err := p.run(ctx, dir); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", a.name, err))
			fmt.Fprintf(out, "  FAILED: %v\n", err)
		}
		failed = append(failed, p.missed...)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// phase is one attack under way.
type phase struct {
	attack
	target *target
	span   time.Duration
	out    io.Writer
	peers  string // the address of the port for members, if the attack is on that
	missed []error
}

// show prints a figure, and notes it if its goal is missed. A negative limit means that there is no goal.
func (p *phase) show(name string, value float64, unit string, limit float64) {
	verdict := ""
	if limit >= 0 {
		verdict = fmt.Sprintf("  at most %s %s", number(limit), unit)
		if value > limit {
			verdict += "  MISSED"
			p.missed = append(p.missed, fmt.Errorf("%s: %s is %s %s, more than %s", p.name, name, number(value), unit, number(limit)))
		}
	}
	fmt.Fprintf(p.out, "  %-44s %12s %-6s%s\n", name, number(value), unit, verdict)
}

// run starts a server, attacks it, and looks after it until it is calm again.
func (p *phase) run(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit)
	defer cancel()
	fmt.Fprintf(p.out, "\n%s\n", p.name)
	if p.members {
		addrs, err := freeAddrs(1)
		if err != nil {
			return err
		}
		p.peers = addrs[0]
		p.arguments = append(p.arguments, "--peer-listen", p.peers, "--peer-advertise", p.peers)
	}
	server, err := p.limited().start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if p.prepare != nil {
		if err := p.prepare(ctx, server.addr); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	before, err := resident(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	p.show("memory before", megabytes(before.all), "MB", -1)
	n, err := newNeighbour(ctx, server.addr)
	if err != nil {
		return fmt.Errorf("the neighbour: %w", err)
	}
	defer n.close()
	peak := watchMemory(server)
	did, err := p.assault(ctx, cmp.Or(p.peers, server.addr))
	top := peak()
	if err != nil {
		return fmt.Errorf("the attacker: %w", err)
	}
	n.close()
	for _, f := range did {
		p.show("attacker: "+f.name, f.value, f.unit, -1)
	}
	n.report(p)
	p.show("most memory", megabytes(top), "MB", megabytes(p.memory/10*11))
	return p.calm(ctx, server, before.all)
}

// limited is the target with the arguments and limits of this phase.
func (p *phase) limited() *target {
	t := *p.target
	t.arguments = func(dir, addr, http string) []string {
		return slices.Concat(p.target.arguments(dir, addr, http), []string{"--memory-limit", strconv.FormatInt(p.memory, 10)}, p.arguments)
	}
	t.files = p.files
	return &t
}

// assault runs the attack in a process of its own and returns its report.
func (p *phase) assault(ctx context.Context, addr string) ([]figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.span+abuseGrace)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, attackerArgument, p.name, addr, p.span.String())
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	said, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var did []attackFigure
	if err := json.Unmarshal(said, &did); err != nil {
		return nil, fmt.Errorf("it says %q: %w", said, err)
	}
	figures := make([]figure, len(did))
	for i, d := range did {
		figures[i] = figure{name: d.Name, unit: d.Unit, value: d.Value}
	}
	return figures, nil
}

// calm waits until the server has given its memory back.
func (p *phase) calm(ctx context.Context, s *server, before int64) error {
	start := time.Now()
	for {
		now, err := resident(s.cmd.Process.Pid)
		if err != nil {
			return err
		}
		if now.all <= before+abuseSlack || time.Since(start) > abuseCalm {
			p.show("memory after", megabytes(now.all), "MB", megabytes(before+abuseSlack))
			p.show("memory released after", time.Since(start).Seconds(), "s", abuseCalm.Seconds())
			return nil
		}
		if err := pauseOr(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

// watchMemory looks at the memory of a server until stop, which returns the most that it had.
func watchMemory(s *server) (stop func() int64) {
	over, most := make(chan struct{}), make(chan int64)
	go func() {
		top := int64(0)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if r, err := resident(s.cmd.Process.Pid); err == nil {
				top = max(top, r.all)
			}
			select {
			case <-tick.C:
			case <-over:
				most <- top
				return
			}
		}
	}()
	return func() int64 {
		close(over)
		return <-most
	}
}

// attackerArgument, in front of an attack's name, an address and a span, makes this program the attacker.
const attackerArgument = "attacker-of-the-abuse-suite"

// attackerAddress is the address that attackers connect from. The neighbour's is another: turns are shared out by address,
// and without one the two would be one client.
var attackerAddress net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}

// attackFigure is a figure on its way from the attacker.
type attackFigure struct {
	Name, Unit string
	Value      float64
}

// attackMain is the main function of the attacker's process.
func attackMain(ctx context.Context, args []string) {
	if err := attackNow(ctx, args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

// attackNow is the attacker's process.
func attackNow(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("the attacker takes the name of an attack, an address and a span")
	}
	span, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	if !strings.HasPrefix(args[1], "127.0.0.1:") {
		return fmt.Errorf("%s is not on this machine: attacks stay on it", args[1])
	}
	for _, a := range attacks() {
		if a.name != args[0] {
			continue
		}
		if err := useOneCore(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, span)
		defer cancel()
		figures, err := a.flood(ctx, args[1])
		if err != nil {
			return err
		}
		did := make([]attackFigure, len(figures))
		for i, f := range figures {
			did[i] = attackFigure{f.name, f.unit, f.value}
		}
		return json.NewEncoder(out).Encode(did)
	}
	return fmt.Errorf("there is no attack called %q", args[0])
}

func megabytes(n int64) float64 { return float64(n) / (1 << 20) }

// pauseOr waits, and returns why if the context ends before.
func pauseOr(ctx context.Context, d time.Duration) error {
	pause(ctx, d)
	return context.Cause(ctx)
}
