package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ticketFile keeps the queues of processes in a file next to the database. A ticket is a lock on one byte,
// which the kernel releases when the process ends, however it ends. The content of the file is two numbers for
// each queue. It is never synced, and no decision depends on it.
type ticketFile struct {
	file *os.File

	mu      sync.Mutex
	waiting map[int64]int // how many tickets of this process each byte for a holder stands for
}

const (
	counterBytes = 8       // of each queue: the last place, and the place up to which tickets no longer count
	firstLock    = 1 << 40 // the bytes of the tickets begin after all counters
	placesBits   = 32      // of the places of one queue
	manyPlaces   = 1 << 31 // from then on a queue begins again as soon as it is empty
	placeTries   = 1000    // how many places that others take at the same moment a process tries to pass
)

// openTickets opens the queue file. If it does not exist, openTickets creates it for the users of the database.
// Without a database the error is then [fs.ErrNotExist].
func openTickets(path string, database fs.FileInfo) (*ticketFile, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) && database != nil {
		if file, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			admit(file, database)
		} else if errors.Is(err, fs.ErrExist) { // another process was faster
			file, err = os.OpenFile(path, flags, 0)
		}
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is no plain file", path), err, file.Close())
	}
	t := &ticketFile{file: file, waiting: make(map[int64]int)}
	if _, _, err := t.first(0, 1, 1); err != nil { // not every file system has such locks
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

// admit lets those users use the file who may use the database, as SQLite does with its log. A process of any
// other user waits without a ticket.
func admit(file *os.File, database fs.FileInfo) {
	if of, ok := database.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		_ = file.Chown(int(of.Uid), int(of.Gid))
	}
	_ = file.Chmod(database.Mode().Perm())
}

func (t *ticketFile) close() error { return t.file.Close() }

// counters returns the last place of a queue, and the place up to which tickets no longer count.
func (t *ticketFile) counters(queue uint32) (last, passed uint32, err error) {
	var both [counterBytes]byte
	if _, err := t.file.ReadAt(both[:], int64(queue)*counterBytes); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint32(both[:4]), binary.LittleEndian.Uint32(both[4:]), nil
}

// take adds a ticket at the end of a queue, and returns its place. Of two processes that choose one place the
// second finds it locked.
func (t *ticketFile) take(queue uint32) (place uint32, err error) {
	last, passed, err := t.counters(queue)
	if err != nil {
		return 0, err
	}
	if place = max(last, passed); place > manyPlaces {
		if place, err = t.restart(queue, place); err != nil {
			return 0, err
		}
	}
	for range placeTries {
		place++
		switch err := t.lock(queue, place, unix.F_WRLCK); {
		case err == nil:
			return place, t.write(queue, 0, place)
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES):
			return 0, err
		}
	}
	return 0, fmt.Errorf("%d places were taken by others", placeTries)
}

// restart makes an empty queue begin with the first place again.
func (t *ticketFile) restart(queue, last uint32) (place uint32, err error) {
	switch _, found, err := t.first(queue, 1, math.MaxUint32); {
	case err != nil:
		return 0, err
	case !found:
		return 0, errors.Join(t.write(queue, 0, 0), t.write(queue, 4, 0))
	case last > math.MaxUint32-placeTries:
		return 0, errors.New("its places are used up until no process waits")
	}
	return last, nil
}

// unlockTicket deletes a ticket of this process.
func (t *ticketFile) unlockTicket(queue, place uint32) error {
	return t.lock(queue, place, unix.F_UNLCK)
}

// passOver makes the tickets up to a place no longer count.
func (t *ticketFile) passOver(queue, place uint32) error {
	_, passed, err := t.counters(queue)
	if err != nil || passed >= place {
		return err
	}
	return t.write(queue, 4, place)
}

func (t *ticketFile) write(queue uint32, at int64, number uint32) error {
	_, err := t.file.WriteAt(binary.LittleEndian.AppendUint32(nil, number), int64(queue)*counterBytes+at)
	return err
}

// first returns a place between from and to at which another process has a ticket. It is the lowest one, unless
// tickets near from have changed meanwhile.
func (t *ticketFile) first(queue, from, to uint32) (place uint32, found bool, err error) {
	at, found, err := t.firstLock(lockOf(queue, from), lockOf(queue, to))
	if !found {
		return 0, false, err
	}
	return uint32(at - lockOf(queue, 0)), true, nil
}

// firstLock returns the first byte from from to to that another process has locked, unless locks near from have
// changed meanwhile.
func (t *ticketFile) firstLock(from, to int64) (at int64, found bool, err error) {
	for end := to; from <= end; end = at - 1 { // the kernel reports any lock
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: from, Len: end - from + 1}
		if err := t.fcntl(unix.F_OFD_GETLK, &l); err != nil {
			return 0, false, err
		}
		if l.Type == unix.F_UNLCK {
			break
		}
		at, found = max(l.Start, from), true
	}
	return at, found, nil
}

func (t *ticketFile) lock(queue, place uint32, kind int16) error {
	return t.lockByte(lockOf(queue, place), kind)
}

func (t *ticketFile) lockByte(at int64, kind int16) error {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
	return t.fcntl(unix.F_OFD_SETLK, &l)
}

// fcntl keeps the file open meanwhile: after a close its number could be another file's.
func (t *ticketFile) fcntl(command int, l *unix.Flock_t) error {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	failed := conn.Control(func(fd uintptr) { err = unix.FcntlFlock(fd, command, l) })
	return errors.Join(failed, err)
}

func lockOf(queue, place uint32) int64 { return firstLock + int64(queue)<<placesBits + int64(place) }
