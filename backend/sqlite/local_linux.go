package sqlite

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/backend"
)

// remote are file systems to which several machines write at the same time. Their locks do not keep what SQLite
// needs, and their machines do not share clocks.
var remote = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x564c: "NCP", 0x5346414f: "AFS", 0x6b414653: "AFS",
	0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x7461636f: "OCFS2", 0x01161970: "GFS2", 0x20030528: "OrangeFS",
	0x19830326: "BeeGFS", 0x73757245: "Coda", 0x786f4256: "a shared folder of VirtualBox", 0xbacbacbc: "a shared folder of VMware",
}

// ntfs is the NTFS of the kernel.
const ntfs = 0x7366746e

// plain are file systems on a disk, or in memory, that one kernel alone can have mounted for writing. All
// others may show the files of another kernel: virtiofs and all of FUSE, 9P, overlays, and file systems unknown
// here.
var plain = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	0x2fc12fc1:                true, // ZFS
	0xca451a4e:                true, // bcachefs
	0x3153464a:                true, // JFS
	0x00003434:                true, // NILFS
	unix.REISERFS_SUPER_MAGIC: true, unix.MSDOS_SUPER_MAGIC: true, unix.EXFAT_SUPER_MAGIC: true,
	ntfs:             true,
	unix.TMPFS_MAGIC: true,
	unix.RAMFS_MAGIC: true,
}

// locate finds out where a file is. It returns an error if other machines certainly reach the file too.
func locate(path string) (location, error) {
	var in unix.Statfs_t
	if err := unix.Statfs(path, &in); err != nil { // it does not exist yet
		path = filepath.Dir(path)
		if err := unix.Statfs(path, &in); err != nil {
			return location{}, nil
		}
	}
	p, err := placeOn(int64(uint32(in.Type)))
	if err != nil {
		return location{}, fmt.Errorf("sqlite: %w: %s %w: put it on a disk of this machine, or use a database with a server", backend.ErrInvalid, path, err)
	}
	var file, root unix.Stat_t
	p.own = unix.Stat(path, &file) == nil && unix.Stat("/", &root) == nil && file.Dev == root.Dev
	return p, nil
}

// placeOn returns what a kind of file system says about the files on it.
func placeOn(kind int64) (location, error) {
	if name := remote[kind]; name != "" {
		return location{}, fmt.Errorf("is on a file system that other machines reach too (%s)", name)
	}
	return location{plain: plain[kind]}, nil
}
