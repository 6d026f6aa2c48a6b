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

// WriteFile replaces the file at path with data, unless a newer token has reached it. The new file gets the
// permission bits perm, less the process's umask. The directory of path must exist.
//
// Any number of goroutines and processes of one machine may call it. Of writers with the same token the last
// one to finish wins.
//
// An error is a [*fence.StaleError], with path as its name; [fence.ErrInvalid]; or the file system's. After an
// error of the file system the old file is still there, unless the error says that it was replaced. Either way
// the write may be repeated with the same token.
func WriteFile(path string, t fence.Token, data []byte, perm fs.FileMode) error {
	return target{machine{}, filepath.Clean(path)}.write(t, data, perm)
}

// Advance raises the mark of the file at path to t, if it is lower. A new holder calls it before it reads the
// file: once Advance has returned nil, no write with an older token takes effect, so no previous holder can
// change what the new holder reads. The file need not exist. Its errors are those of [WriteFile].
func Advance(path string, t fence.Token) error {
	return target{machine{}, filepath.Clean(path)}.advance(t)
}

// Highest returns the highest token that has reached the file at path; 0 for none. It is for people who inspect
// a file: a writer that decides by it has a gap between the check and the write.
func Highest(path string) (fence.Token, error) {
	return target{machine{}, filepath.Clean(path)}.highest()
}

// target is the file to replace.
type target struct {
	disk disk
	path string
}

// markDir returns the directory of the marks and the unfinished writes. It is in the directory of the file, so that
// a rename from it stays on one file system.
func (f target) markDir() string {
	dir, base := filepath.Split(f.path)
	return filepath.Join(dir, "."+base+".fence")
}

func (f target) write(t fence.Token, data []byte, perm fs.FileMode) error {
	if err := f.advance(t); err != nil {
		return err
	}
	unfinished := filepath.Join(f.markDir(), spell(t)+"."+rand.Text())
	if err := f.fill(unfinished, data, perm); err != nil {
		_ = f.disk.remove(unfinished) // if this fails, a newer holder removes it
		return f.notReplaced(t, err)
	}
	if err := f.check(t); err != nil {
		_ = f.disk.remove(unfinished)
		return err
	}
	if err := f.disk.rename(unfinished, f.path); err != nil {
		if stale := f.check(t); stale != nil {
			return stale // a newer holder removed it
		}
		_ = f.disk.remove(unfinished)
		return f.notReplaced(t, err)
	}
	if err := f.disk.syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("%s was replaced with token %d, but a power cut may undo it: repeat it with the same token: %w", f.path, t, err)
	}
	return nil
}

// fill writes data to a new file, syncs it and closes it: on Windows an open file cannot be removed.
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

// advance makes t the mark and removes the unfinished writes of older tokens. It refuses t if there is a higher
// mark.
func (f target) advance(t fence.Token) error {
	if err := f.validate(t); err != nil {
		return err
	}
	if err := f.disk.mkdir(f.markDir()); err != nil {
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
		return fmt.Errorf("%w: %q is not the name of a file", fence.ErrInvalid, f.path)
	}
	return nil
}

func (f target) notReplaced(t fence.Token, err error) error {
	return fmt.Errorf("%s was not replaced with token %d: fix the cause, then repeat it with the same token: %w", f.path, t, err)
}

// mark creates the mark t and syncs it. It also syncs a mark that exists, because the process that created it may have
// stopped before it did so.
func (f target) mark(t fence.Token) error {
	made, err := f.disk.create(filepath.Join(f.markDir(), spell(t)), 0o666)
	if err == nil {
		err = made.Close()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if err := f.disk.syncDir(f.markDir()); err != nil {
		return err
	}
	return f.disk.syncDir(filepath.Dir(f.path)) // the mark directory itself may be new
}

// sweep removes marks and unfinished writes with tokens below t, lowest first. The order matters: if a writer misses a
// mark because sweep removes it while the writer lists the directory, then the writer's own file is already gone.
func (f target) sweep(t fence.Token) error {
	entries, err := f.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.token >= t {
			break
		}
		err := f.disk.remove(filepath.Join(f.markDir(), e.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the unfinished write of token %d cannot be removed, so it might still take effect: %w", e.token, err)
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

// entries returns the marks and unfinished writes, by token.
func (f target) entries() ([]entry, error) {
	names, err := f.disk.list(f.markDir())
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, name := range names {
		spelt, _, unfinished := strings.Cut(name, ".")
		token, err := fence.ParseToken(strings.TrimLeft(spelt, "0"))
		if err != nil || spell(token) != spelt {
			continue // a file of another program
		}
		entries = append(entries, entry{name, token, !unfinished})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.token, b.token) })
	return entries, nil
}

// spell returns the token with leading zeros, so that a listing of the directory is in their order.
func spell(t fence.Token) string { return fmt.Sprintf("%020d", uint64(t)) }
