package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// The database's write-ahead log consists of blocks of walBlock bytes, and a block of chunks. A chunk begins with a
// checksum (4 bytes), the length of its contents (2) and its kind (1), which the checksum covers as all that follows:
// the number of the log (4), how many bytes of the log are known to be on stable storage (8), and the contents. Logs of
// an old form lack the second-last of these. A block's end that is too short for a chunk is zeros. A log that was closed
// ends with walTrailer and the number of the log that follows it.
//
// What a chunk says to be on stable storage tells damage from a write that a crash cut off: if a later chunk is whole
// and says that what cannot be read had been synced, then it is damaged. The database says less than it could: it does
// not count blocks that filled up between two syncs. So [walFile] says it for the database, when chunks are on their way
// to the disk, and [checkWAL] reads the log before the database does. The database's own reader looks for such a chunk
// in later blocks only, and takes a chunk with the number of the next log for the end.
const (
	walBlock     = 32 << 10
	walHead      = 19 // of a chunk
	walOldHead   = 11
	walNumberAt  = 7
	walSyncedAt  = 11
	walOldFirst  = 5 // kinds of chunks: four of the old form, and four of the new one
	walFirst     = 9
	walLast      = 12
	walTrailer   = "\x00\x00\x00\x00\x00\x00\x05"
	walSuffix    = ".log"
	walSumOffset = 0xa282ead8
)

var walSums = crc32.MakeTable(crc32.Castagnoli)

// walSum is the database's checksum: it is changed so that data seldom holds what looks like it.
func walSum(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, walSums), 17) + walSumOffset
}

// walChunk returns the length of the whole chunk that b begins with, and whether it says what was synced. If b begins
// with no whole chunk, size is 0.
func walChunk(b []byte) (size int, says bool) {
	if len(b) < walOldHead || b[6] < walOldFirst || b[6] > walLast {
		return 0, false
	}
	head := walOldHead
	if says = b[6] >= walFirst; says {
		head = walHead
	}
	size = head + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) || walSum(b[6:size]) != binary.LittleEndian.Uint32(b) {
		return 0, false
	}
	return size, says
}

// walFile is a write-ahead log that the database writes, from one goroutine at a time. Each chunk that is written to it
// says how much of the log was on stable storage at that moment.
type walFile struct {
	vfs.File
	written int64
	synced  int64  // of what was written
	scratch []byte // what is written belongs to the database and stays as it is
}

// Write is part of vfs.File, as are the methods below.
func (f *walFile) Write(p []byte) (int, error) {
	if f.synced > 0 {
		f.scratch = append(f.scratch[:0], p...)
		saySynced(f.scratch, f.written, f.synced)
		p = f.scratch
	}
	n, err := f.File.Write(p)
	f.written += int64(n)
	return n, err
}

// saySynced has the chunks in b, which come at an offset of the log, say how much is synced. It leaves alone what is no
// chunk.
func saySynced(b []byte, offset, synced int64) {
	for len(b) > 0 {
		left := min(len(b), int(walBlock-offset%walBlock))
		size, says := walChunk(b[:left])
		switch {
		case size == 0:
			size = left // the rest of the block is no chunk
		case says && binary.LittleEndian.Uint64(b[walSyncedAt:]) < uint64(synced):
			binary.LittleEndian.PutUint64(b[walSyncedAt:], uint64(synced))
			binary.LittleEndian.PutUint32(b, walSum(b[6:size]))
		}
		b, offset = b[size:], offset+int64(size)
	}
}

func (f *walFile) Sync() error { return f.sync(f.File.Sync) }

func (f *walFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *walFile) sync(sync func() error) error {
	written := f.written
	err := sync()
	if err == nil {
		f.synced = written
	}
	return err
}

// Preallocate reserves what will be written, and makes the file as long. What it is extended by reads as zeros, which
// is how the end of a write-ahead log looks as well.
func (f *walFile) Preallocate(offset, length int64) error {
	if fd := f.Fd(); fd != vfs.InvalidFd {
		return extend(fd, offset, length)
	}
	return f.File.Preallocate(offset, length)
}

// isWAL reports whether a file is a write-ahead log.
func isWAL(name string) bool { return strings.HasSuffix(name, walSuffix) }

// walNumber returns the number of the log with that name.
func walNumber(base string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(base, walSuffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && err == nil
}

// checkWALFile checks a log that the database is about to read. All logs but the newest must have been closed.
func checkWALFile(files vfs.FS, path string) (err error) {
	number, ok := walNumber(files.PathBase(path))
	if !ok {
		return nil
	}
	names, err := files.List(files.PathDir(path))
	if err != nil {
		return err
	}
	newest := true
	for _, name := range names {
		other, ok := walNumber(name)
		newest = newest && !(ok && other > number)
	}
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return checkWAL(f, files.PathBase(path), uint32(number), newest)
}

// checkWAL reads a log and reports damage that cannot be what a crash left of writes that nobody had acknowledged.
func checkWAL(log io.Reader, name string, number uint32, newest bool) error {
	c := &walCheck{number: binary.LittleEndian.AppendUint32(nil, number), next: binary.LittleEndian.AppendUint32(nil, number+1), whole: true}
	block := make([]byte, walBlock)
	for {
		n, err := io.ReadFull(log, block)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		c.block(block[:n])
		if err != nil {
			break
		}
	}
	switch {
	case c.intact < c.synced:
		return &record.DamagedError{What: fmt.Sprintf("the write-ahead log %s cannot be read from byte %d on, and it was on the disk as far as byte %d", name, c.intact, c.synced)}
	case !newest && !c.closed:
		return &record.DamagedError{What: fmt.Sprintf("the write-ahead log %s cannot be read from byte %d on, and it had been closed: a newer one is there", name, c.intact)}
	}
	return nil
}

// walCheck is what was read of a log so far.
type walCheck struct {
	number, next []byte // of the log and of the one after it, as they stand in chunks
	offset       int64  // of the block that comes next
	whole        bool   // all so far could be read
	closed       bool   // and it ended with a trailer
	intact       int64  // up to where it could be read
	synced       int64  // the most that a chunk says to be on stable storage
}

// block takes the next block, of which only the last one is shorter than the others.
func (c *walCheck) block(b []byte) {
	for at := 0; at < len(b); {
		rest := b[at:]
		if size := c.chunk(rest, c.offset+int64(at)); size > 0 {
			at += size
			if c.whole {
				c.intact = c.offset + int64(at)
			}
			continue
		}
		if c.whole {
			if len(rest) < walHead && len(bytes.Trim(rest, "\x00")) == 0 { // what is left of the block is too short
				c.intact = c.offset + int64(len(b))
				break
			}
			c.whole = false
			c.closed = len(rest) >= walOldHead && string(rest[:walNumberAt]) == walTrailer && bytes.HasPrefix(rest[walNumberAt:], c.next)
		}
		// The length of what cannot be read is not to be relied on: the next chunk is where the number of the log is.
		at += 1 + walNumberAt
		found := -1
		if at < len(b) {
			found = bytes.Index(b[at:], c.number)
		}
		if found < 0 {
			break
		}
		at += found - walNumberAt
	}
	c.offset += int64(len(b))
}

// chunk returns the length of the chunk that b begins with, 0 if there is none. A chunk cannot know of what comes after
// it.
func (c *walCheck) chunk(b []byte, offset int64) int {
	size, says := walChunk(b)
	if size == 0 || !bytes.HasPrefix(b[walNumberAt:], c.number) {
		return 0
	}
	if says {
		if synced := binary.LittleEndian.Uint64(b[walSyncedAt:]); synced <= uint64(offset) {
			c.synced = max(c.synced, int64(synced))
		}
	}
	return size
}
