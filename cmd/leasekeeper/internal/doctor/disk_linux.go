package doctor

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// hasModes reports whether files of this system have permission bits.
const hasModes = true

// syncData syncs the data of a file, as the server does.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

const mountsFile = "/proc/self/mountinfo"

// checkFileSystem checks the file system of a directory.
func checkFileSystem(dir string) Check {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return skipped("file system", "%v", err)
	}
	text, err := os.ReadFile(mountsFile)
	if err != nil {
		return skipped("file system", "the kernel does not show the mounts: %v", err)
	}
	kind, mount := mountOf(string(text), path)
	if kind == "" {
		return skipped("file system", "%s is on no mount that this process can see", path)
	}
	return judgeFileSystem(kind, mount)
}

// mountOf returns the kind and the mount point of the file system of a path. text is that of /proc/self/mountinfo. Of two
// mounts at one place the later one counts.
func mountOf(text, path string) (kind, mount string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for i := 6; i < len(fields)-1; i++ { // optional fields end with a dash
			if fields[i] != "-" {
				continue
			}
			at := unescapeMount(fields[4])
			if contains(at, path) && len(at) >= len(mount) {
				kind, mount = fields[i+1], at
			}
			break
		}
	}
	return kind, mount
}

// contains reports whether a directory is path, or above it. Both are absolute.
func contains(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// unescapeMount decodes the characters that the kernel escapes in a mount point.
func unescapeMount(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}
