package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/driver"
)

// remote are file systems that several machines write to at once. Their locks do not keep what SQLite needs, and
// their machines do not share clocks.
var remote = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x564c: "NCP", 0x5346414f: "AFS", 0x6b414653: "AFS",
	0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x7461636f: "OCFS2", 0x01161970: "GFS2", 0x20030528: "OrangeFS",
	0x19830326: "BeeGFS", 0x73757245: "Coda", 0x786f4256: "a shared folder of VirtualBox", 0xbacbacbc: "a shared folder of VMware",
}

// maybe are those of which nobody can tell: what they show may lie on this machine or on another.
var maybe = map[int64]bool{
	0x65735546: true, // FUSE, with virtiofs
	0x01021997: true, // 9P
}

// local says whether only processes of this machine can reach a file. A file that surely others reach too is an
// error.
func local(path string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return false, nil // it is not there yet, or can not be asked: then nothing rests on it
	}
	kind := int64(uint32(stat.Type))
	if name := remote[kind]; name != "" {
		return false, fmt.Errorf("sqlite: %w: %s is on a file system that other machines reach too (%s): put it on a disk of this machine, or use a database with a server", driver.ErrInvalid, path, name)
	}
	return !maybe[kind], nil
}
