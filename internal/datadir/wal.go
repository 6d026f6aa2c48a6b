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

// The database's write-ahead log consists of blocks of walBlock bytes, and a block consists of chunks:
//
//	checksum (4 bytes)   of everything from kind on
//	length (2)           of the contents
//	kind (1)
//	log number (4)
//	synced length (8)    bytes of the log that are known to be on stable storage; missing in the old format
//	contents
//
// The end of a block that is too short for a chunk is zeros. A closed log ends with walTrailer and the number of the
// next log.
//
// The synced length distinguishes damage from a write that a crash cut off: if a later chunk is intact and says that
// an unreadable part had been synced, that part is damaged.
//
// The database writes a synced length that is too low, because it leaves out blocks that filled up between two syncs.
// So [walFile] corrects it when chunks are written, and [checkWAL] reads the log before the database does. The
// database's own reader looks for such chunks in later blocks only, and takes a chunk of the next log for the end.
const (
	walBlock     = 32 << 10
	walHead      = 19 // length of a chunk's head
	walOldHead   = 11
	walNumberAt  = 7
	walSyncedAt  = 11
	walOldFirst  = 5 // the kinds of chunks: four of the old format, and four of the new one
	walFirst     = 9
	walLast      = 12
	walTrailer   = "\x00\x00\x00\x00\x00\x00\x05"
	walSuffix    = ".log"
	walSumOffset = 0xa282ead8
)

var walSums = crc32.MakeTable(crc32.Castagnoli)

// walSum is the database's checksum. It differs from a plain CRC so that contents rarely look like a checksum.
func walSum(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, walSums), 17) + walSumOffset
}

// walChunk returns the length of the intact chunk at the start of b, or 0 if there is none, and whether the chunk has
// a synced length.
func walChunk(b []byte) (size int, marked bool) {
	if len(b) < walOldHead || b[6] < walOldFirst || b[6] > walLast {
		return 0, false
	}
	head := walOldHead
	if marked = b[6] >= walFirst; marked {
		head = walHead
	}
	size = head + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) || walSum(b[6:size]) != binary.LittleEndian.Uint32(b) {
		return 0, false
	}
	return size, marked
}

// walFile is a write-ahead log that the database writes, from one goroutine at a time. It sets the synced length of
// each written chunk to the true value.
type walFile struct {
	vfs.File
	written int64
	synced  int64  // length that was synced
	scratch []byte // copy of the written bytes, because the database's own memory must not change
}

// Write corrects the chunks and writes them. Like the methods below it is part of vfs.File.
func (f *walFile) Write(p []byte) (int, error) {
	if f.synced > 0 {
		f.scratch = append(f.scratch[:0], p...)
		markSynced(f.scratch, f.written, f.synced)
		p = f.scratch
	}
	n, err := f.File.Write(p)
	f.written += int64(n)
	return n, err
}

// markSynced sets the synced length of the chunks in b, which begins at an offset of the log. It changes nothing else.
func markSynced(b []byte, offset, synced int64) {
	for len(b) > 0 {
		left := min(len(b), int(walBlock-offset%walBlock))
		size, marked := walChunk(b[:left])
		switch {
		case size == 0:
			size = left // the rest of the block is no chunk
		case marked && binary.LittleEndian.Uint64(b[walSyncedAt:]) < uint64(synced):
			binary.LittleEndian.PutUint64(b[walSyncedAt:], uint64(synced))
			binary.LittleEndian.PutUint32(b, walSum(b[6:size]))
		}
		b, offset = b[size:], offset+int64(size)
	}
}

func (f *walFile) Sync() error { return f.syncWith(f.File.Sync) }

func (f *walFile) SyncData() error { return f.syncWith(f.File.SyncData) }

func (f *walFile) syncWith(sync func() error) error {
	written := f.written
	err := sync()
	if err == nil {
		f.synced = written
	}
	return err
}

// Preallocate reserves blocks and extends the file to the reserved length. The new part reads as zeros, like the
// unwritten end of a write-ahead log.
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

// checkWALFile checks a log that the database is about to read. All logs except the newest must have been closed.
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

// checkWAL reads a log and reports damage that no crash during unacknowledged writes can have caused.
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

// walCheck is the progress of reading a log.
type walCheck struct {
	number, next []byte // numbers of the log and of the next one, encoded as in chunks
	offset       int64  // of the next block
	whole        bool   // everything so far could be read
	closed       bool   // the log ended with a trailer
	intact       int64  // length that could be read
	synced       int64  // greatest synced length of any chunk
}

// block reads the next block. Only the last block may be shorter than walBlock.
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
			if len(rest) < walHead && len(bytes.Trim(rest, "\x00")) == 0 { // the rest of the block is too short for a chunk
				c.intact = c.offset + int64(len(b))
				break
			}
			c.whole = false
			c.closed = len(rest) >= walOldHead && string(rest[:walNumberAt]) == walTrailer && bytes.HasPrefix(rest[walNumberAt:], c.next)
		}
		// The length of an unreadable chunk cannot be trusted: search for the next occurrence of the log's number.
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

// chunk returns the length of the chunk at the start of b, or 0 if there is none. It ignores a synced length beyond
// the chunk's own offset.
func (c *walCheck) chunk(b []byte, offset int64) int {
	size, marked := walChunk(b)
	if size == 0 || !bytes.HasPrefix(b[walNumberAt:], c.number) {
		return 0
	}
	if marked {
		if synced := binary.LittleEndian.Uint64(b[walSyncedAt:]); synced <= uint64(offset) {
			c.synced = max(c.synced, int64(synced))
		}
	}
	return size
}
