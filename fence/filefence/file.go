package filefence

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/fence"
)

// WriteFile replaces the file at path with data, unless a newer token came for it. The permission bits perm
// are those of the new file, less the process's umask. The folder in which path lies must exist.
//
// It may be called by any number of goroutines and processes of one machine. Those with the same token are
// not told apart: the last one to finish wins.
//
// An error is a [*fence.StaleError], with path as its name; [fence.ErrInvalid]; or the file system's. After an
// error of the file system the file is as it was or, if the error says so, replaced; either way the write may
// be repeated with the same token.
func WriteFile(path string, t fence.Token, data []byte, perm fs.FileMode) error {
	return target{machine{}, filepath.Clean(path)}.write(t, data, perm)
}

// Advance raises the mark of the file at path to t, if it is not there already. It is what a new holder does
// before it reads the file: once it has returned nil, no write with an older token takes effect any more, so
// what is read is what the predecessors left. The file need not exist. Its errors are those of [WriteFile].
func Advance(path string, t fence.Token) error {
	return target{machine{}, filepath.Clean(path)}.advance(t)
}

// Highest returns the highest token that came for the file at path, 0 if none did. It is for people who want
// to know; a writer that decides by it has a gap between the check and the write.
func Highest(path string) (fence.Token, error) {
	return target{machine{}, filepath.Clean(path)}.highest()
}

// target is a file that is to be replaced.
type target struct {
	disk disk
	path string
}

// folder is where the marks and the unfinished writes lie: in the folder of the file, so that a rename from
// there stays on one file system.
func (f target) folder() string {
	dir, base := filepath.Split(f.path)
	return filepath.Join(dir, "."+base+".fence")
}

func (f target) write(t fence.Token, data []byte, perm fs.FileMode) error {
	if err := f.advance(t); err != nil {
		return err
	}
	unfinished := filepath.Join(f.folder(), spell(t)+"."+rand.Text())
	if err := f.fill(unfinished, data, perm); err != nil {
		_ = f.disk.remove(unfinished) // else a newer holder does it
		return f.notReplaced(t, err)
	}
	if err := f.check(t); err != nil {
		_ = f.disk.remove(unfinished)
		return err
	}
	if err := f.disk.rename(unfinished, f.path); err != nil {
		if stale := f.check(t); stale != nil {
			return stale // it was taken away by a newer holder
		}
		_ = f.disk.remove(unfinished)
		return f.notReplaced(t, err)
	}
	if err := f.disk.syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("%s was replaced with token %d, but a power cut may undo it: repeat it with the same token: %w", f.path, t, err)
	}
	return nil
}

// fill writes data to a new file and has it on disk. It is closed then: on Windows open files cannot be
// removed.
func (f target) fill(name string, data []byte, perm fs.FileMode) error {
	to, err := f.disk.create(name, perm)
	if err != nil {
		return err
	}
	if _, err = to.Write(data); err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// advance makes t the mark and takes away what older writers have not finished. It is refused if there is a
// higher mark.
func (f target) advance(t fence.Token) error {
	if err := f.validate(t); err != nil {
		return err
	}
	if err := f.disk.mkdir(f.folder()); err != nil {
		return f.notReplaced(t, err)
	}
	if err := f.check(t); err != nil { // so that a stale writer leaves nothing behind
		return err
	}
	if err := f.mark(t); err != nil {
		return f.notReplaced(t, err)
	}
	if err := f.sweep(t); err != nil {
		return f.notReplaced(t, err)
	}
	return f.check(t)
}

func (f target) validate(t fence.Token) error {
	if t == 0 {
		return fmt.Errorf("%w: 0 is no fencing token: write %s with the token of the lease", fence.ErrInvalid, f.path)
	}
	if base := filepath.Base(f.path); base == "." || base == ".." || base == string(filepath.Separator) {
		return fmt.Errorf("%w: %q is no name of a file", fence.ErrInvalid, f.path)
	}
	return nil
}

func (f target) notReplaced(t fence.Token, err error) error {
	return fmt.Errorf("%s was not replaced with token %d: repeat it with the same token when the cause is mended: %w", f.path, t, err)
}

// mark creates the mark t and has it on disk. It is flushed also if another process created it: whether that process
// came to flushing it is not known.
func (f target) mark(t fence.Token) error {
	made, err := f.disk.create(filepath.Join(f.folder(), spell(t)), 0o666)
	if err == nil {
		err = made.Close()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if err := f.disk.syncDir(f.folder()); err != nil {
		return err
	}
	return f.disk.syncDir(filepath.Dir(f.path)) // the folder itself may be new
}

// sweep removes what has a lower token than t. The order matters: a writer that misses a mark because it is removed
// during the look has lost its own file already.
func (f target) sweep(t fence.Token) error {
	entries, err := f.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.token >= t {
			break
		}
		err := f.disk.remove(filepath.Join(f.folder(), e.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("what the holder of token %d left cannot be taken away, so its write might still take effect: %w", e.token, err)
		}
	}
	return nil
}

// check refuses t if there is a higher mark.
func (f target) check(t fence.Token) error {
	highest, err := f.highest()
	if err != nil {
		return f.notReplaced(t, err)
	}
	if t < highest {
		return &fence.StaleError{Name: f.path, Token: t, Highest: highest}
	}
	return nil
}

func (f target) highest() (fence.Token, error) {
	entries, err := f.entries()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	highest := fence.Token(0)
	for _, e := range entries {
		if e.mark {
			highest = max(highest, e.token)
		}
	}
	return highest, err
}

// entry is a mark or an unfinished write.
type entry struct {
	name  string
	token fence.Token
	mark  bool
}

// entries lists what lies in the folder, by token.
func (f target) entries() ([]entry, error) {
	names, err := f.disk.list(f.folder())
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, name := range names {
		spelt, _, unfinished := strings.Cut(name, ".")
		token, err := fence.ParseToken(strings.TrimLeft(spelt, "0"))
		if err != nil || spell(token) != spelt {
			continue // not ours
		}
		entries = append(entries, entry{name, token, !unfinished})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.token, b.token) })
	return entries, nil
}

// spell returns the token with leading zeros, so that people who list the folder see them in order.
func spell(t fence.Token) string { return fmt.Sprintf("%020d", uint64(t)) }
