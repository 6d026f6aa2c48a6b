package filefence

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/fence"
)

// watcher checks that the file changes only to equal or newer tokens.
type watcher struct {
	disk  *vfs.MemFS
	last  fence.Token
	floor fence.Token // the highest token whose write has been reported as done
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func (w *watcher) look(t fataler) {
	t.Helper()
	now, err := landed(w.disk)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if now < w.last {
		t.Fatalf("the write of %d took effect after that of %d", now, w.last)
	}
	if now < w.floor {
		t.Fatalf("the file holds what %d wrote, after the write of %d was done", now, w.floor)
	}
	w.last = now
}

func (w *watcher) finished(t fataler, by *writer) {
	t.Helper()
	switch {
	case by.err == nil:
		w.floor = max(w.floor, by.token)
	case !errors.Is(by.err, fence.ErrStale):
		// A newer writer removed its mark while it looked for the reason why its own file was gone. The error
		// is still right: it replaced nothing.
		if now, err := landed(w.disk); err != nil || now == by.token {
			t.Fatalf("%d: %v, but the file holds what %d wrote (%v)", by.token, by.err, now, err)
		}
	}
	w.look(t)
}

// A holder is paused at two of its steps. In the first pause the next holder writes. In the second pause a third
// holder writes, and is paused too.
func TestHolderPausedAtAnyTwoStepsReplacesNothingNewer(t *testing.T) {
	refused, most := 0, 0
	play := func(a, b, c int) (more [3]bool) {
		m := newDisk(t)
		see := &watcher{disk: m}
		look := func() { see.look(t) }
		four, five, six := begin(m, 4), begin(m, 5), begin(m, 6)
		four.run(a, look)
		more[0] = !four.over
		five.run(all, look)
		see.finished(t, five)
		if five.err != nil {
			t.Fatalf("the next holder could not write: %v", five.err)
		}
		four.run(b, look)
		more[1] = !four.over
		six.run(c, look)
		more[2] = !six.over
		four.run(all, look)
		see.finished(t, four)
		six.run(all, look)
		see.finished(t, six)
		if see.last != 6 || six.err != nil {
			t.Fatalf("paused at %d, %d, %d: the file holds what %d wrote; %v", a, b, c, see.last, six.err)
		}
		entries, err := target{simulated{fs: m}, where}.entries()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.mark {
				t.Fatalf("paused at %d, %d, %d: %s is left behind", a, b, c, e.name)
			}
		}
		if four.err != nil {
			refused++
		}
		most = max(most, four.steps, six.steps)
		return more
	}
	runs := 0
	for a := 0; ; a++ {
		var more [3]bool
		for b := 0; ; b++ {
			for c := 0; ; c++ {
				more = play(a, b, c)
				runs++
				if !more[2] {
					break
				}
			}
			if !more[1] {
				break
			}
		}
		if !more[0] {
			break
		}
	}
	if refused == 0 || refused == runs || most < 12 {
		t.Errorf("of %d runs %d were refused, with at most %d steps: the runs show nothing", runs, refused, most)
	}
	t.Logf("%d runs, %d refused, up to %d steps", runs, refused, most)
}

// Up to five writers take steps in random order, with random power cuts.
func TestRandomSchedulesAndPowerCutsKeepTokenOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := vfs.NewCrashableMem()
		if err := m.MkdirAll("/d", 0o777); err != nil {
			t.Fatal(err)
		}
		d := simulated{fs: m}
		if err := errors.Join(d.syncDir("/d"), d.syncDir("/")); err != nil {
			t.Fatal(err)
		}
		see := &watcher{disk: m}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var writers []*writer
		for _, token := range rapid.SliceOfN(rapid.Uint64Range(1, 4), 2, 5).Draw(t, "tokens") {
			writers = append(writers, begin(m, fence.Token(token)))
		}
		running := len(writers)
		for running > 0 {
			w := writers[random.IntN(len(writers))]
			if w.over {
				continue
			}
			w.run(1+random.IntN(12), func() {
				see.look(t)
				if random.IntN(8) == 0 {
					afterPowerCut(t, m, random, see.floor)
				}
			})
			if w.over {
				running--
				see.finished(t, w)
			}
		}
	})
}

// afterPowerCut checks what the disk may hold when power fails now. The mark must not be below the token in the file,
// nor that token below floor, the highest token whose write has returned nil.
func afterPowerCut(t fataler, m *vfs.MemFS, random *rand.Rand, floor fence.Token) {
	t.Helper()
	for _, percent := range []int{0, 50} {
		after := m.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
		data, err := landed(after)
		if err != nil {
			t.Fatalf("after a power cut: %v", err)
		}
		again := target{simulated{fs: after}, where}
		mark, err := again.highest()
		if err != nil {
			t.Fatalf("after a power cut: %v", err)
		}
		if mark < data {
			t.Fatalf("after a power cut the file holds what %d wrote, and the mark is %d", data, mark)
		}
		if data < floor {
			t.Fatalf("after a power cut the file holds what %d wrote, although %d was done", data, floor)
		}
		if data > 1 {
			if err := again.write(data-1, dataOf(data-1), 0o666); !errors.Is(err, fence.ErrStale) {
				t.Fatalf("after a power cut %d was not refused: %v", data-1, err)
			}
		}
		if err := again.write(mark+1, dataOf(mark+1), 0o666); err != nil {
			t.Fatalf("after a power cut %d could not write: %v", mark+1, err)
		}
		if data, err = landed(after); data != mark+1 || err != nil {
			t.Fatalf("after a power cut: %d, %v", data, err)
		}
	}
}

// killed is the panic of a step at which the process is killed.
type killed struct{}

// The process or the power ends at each step of a write: in a new directory, and in one with the file and the
// unfinished write of a previous holder.
func TestKillOrPowerCutAfterEachStepKeepsTheMark(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for _, prepared := range []bool{false, true} {
		steps := 0
		for cut := 0; ; cut++ {
			m := newDisk(t)
			before := fence.Token(0)
			if prepared {
				if err := (target{simulated{fs: m}, where}).write(7, dataOf(7), 0o666); err != nil {
					t.Fatal(err)
				}
				begin(m, 7).run(11, func() {}) // and stays paused forever
				before = 7
			}
			left, finished := cut, false
			func() {
				defer func() {
					if p := recover(); p != nil && p != (killed{}) {
						panic(p)
					}
				}()
				d := simulated{m, func(string) {
					if left == 0 {
						panic(killed{})
					}
					left--
				}}
				if err := (target{d, where}).write(8, dataOf(8), 0o666); err != nil {
					t.Fatal(err)
				}
				finished = true
			}()
			now, err := landed(m)
			if err != nil || now != before && now != 8 {
				t.Fatalf("cut after %d steps: %d, %v", cut, now, err)
			}
			floor := before
			if finished {
				floor = 8
			}
			for range 20 {
				afterPowerCut(t, m, random, floor)
			}
			// The process is dead, and the machine continues.
			again := target{simulated{fs: m}, where}
			if now == 8 {
				if err := again.write(7, dataOf(7), 0o666); !errors.Is(err, fence.ErrStale) {
					t.Fatalf("cut after %d steps: 7 after 8: %v", cut, err)
				}
			}
			if err := again.write(8, dataOf(8), 0o666); err != nil {
				t.Fatalf("cut after %d steps: not repeatable: %v", cut, err)
			}
			for range 20 {
				afterPowerCut(t, m, random, 8)
			}
			if finished {
				steps = cut
				break
			}
		}
		if steps < 12 {
			t.Errorf("a write has only %d steps, so the test misses some", steps)
		}
	}
}

// Each step of the disk fails, one step per run.
func TestFailedStepIsReportedAndCanBeRepeated(t *testing.T) {
	broken := errors.New("disk broken")
	for at := 0; ; at++ {
		m := newDisk(t)
		if err := (target{simulated{fs: m}, where}).write(7, dataOf(7), 0o666); err != nil {
			t.Fatal(err)
		}
		d := &failing{simulated{fs: m}, at, broken}
		err := target{d, where}.write(8, dataOf(8), 0o666)
		now, lookErr := landed(m)
		if lookErr != nil {
			t.Fatal(lookErr)
		}
		if d.left >= 0 { // no step failed
			if err != nil || now != 8 {
				t.Fatalf("%d, %v", now, err)
			}
			if at < 10 {
				t.Errorf("only %d steps were seen", at)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Fatalf("step %d failed, and the write returned %v", at, err)
		}
		if again := (target{simulated{fs: m}, where}).write(8, dataOf(8), 0o666); again != nil {
			t.Fatalf("step %d: the write could not be repeated: %v", at, again)
		}
	}
}

// failing is a disk whose step number left (from 0) fails with err.
type failing struct {
	disk
	left int
	err  error
}

func (d *failing) fails() bool { d.left--; return d.left == -1 }

func (d *failing) mkdir(name string) error {
	if d.fails() {
		return d.err
	}
	return d.disk.mkdir(name)
}

func (d *failing) create(name string, perm fs.FileMode) (file, error) {
	if d.fails() {
		return nil, d.err
	}
	f, err := d.disk.create(name, perm)
	return failingFile{d, f}, err
}

func (d *failing) rename(from, to string) error {
	if d.fails() {
		return d.err
	}
	return d.disk.rename(from, to)
}

func (d *failing) remove(name string) error {
	if d.fails() {
		return d.err
	}
	return d.disk.remove(name)
}

func (d *failing) list(dir string) ([]string, error) {
	if d.fails() {
		return nil, d.err
	}
	return d.disk.list(dir)
}

func (d *failing) syncDir(dir string) error {
	if d.fails() {
		return d.err
	}
	return d.disk.syncDir(dir)
}

type failingFile struct {
	disk *failing
	file
}

func (f failingFile) Write(p []byte) (int, error) {
	if f.disk.fails() {
		return 0, f.disk.err
	}
	return f.file.Write(p)
}

func (f failingFile) Sync() error {
	if f.disk.fails() {
		return f.disk.err
	}
	return f.file.Sync()
}

func (f failingFile) Close() error {
	err := f.file.Close()
	if f.disk.fails() {
		return f.disk.err
	}
	return err
}
