package serve

import (
	"fmt"
	"os"
	"runtime/debug"
)

// programID identifies the program in this process's file. It differs between builds, as long as they differ in version,
// commit, size or time of the file.
func programID(version string) string {
	id := version
	if info, ok := debug.ReadBuildInfo(); ok {
		id += " " + info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				id += " " + s.Value
			}
		}
	}
	path, err := os.Executable()
	if err != nil {
		return id
	}
	file, err := os.Stat(path)
	if err != nil {
		return id
	}
	return fmt.Sprintf("%s %d %d", id, file.Size(), file.ModTime().UnixNano())
}
