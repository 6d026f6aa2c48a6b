package reread

import (
	"os"
	"time"
)

// Interval is the time between two looks at the files.
const Interval = time.Second

// Files are files that a program reads again when they have changed. Make one with [Watch]. Its methods are not safe for
// concurrent use.
type Files struct {
	paths     []string
	every     time.Duration
	looked    time.Time
	seen      []os.FileInfo // by path; nil for a file that could not be examined
	complaint string        // error of the files' present version; "" if it is in use
}

// Watch notes the present version of the files. The caller reads them afterwards, so that the next look notices a change
// during the reading.
func Watch(now time.Time, paths ...string) Files {
	f := Files{paths: paths, every: Interval, looked: now}
	f.seen = f.examine()
	return f
}

// LookEvery replaces [Interval]; 0 means to look at each question.
func (f *Files) LookEvery(d time.Duration) { f.every = d }

// Changed reports whether the files must be read: they differ from the last look, or they could not be used then. It looks at
// most once per interval.
func (f *Files) Changed(now time.Time) bool {
	if now.Sub(f.looked).Abs() < f.every {
		return false
	}
	f.looked = now
	seen := f.examine()
	if f.complaint == "" && same(seen, f.seen) {
		return false
	}
	f.seen = seen
	return true
}

// Used notes how the reading ended: err says why the files cannot be used; nil if they are in use. It reports whether the
// error is another one than that of the reading before.
func (f *Files) Used(err error) (news bool) {
	if err == nil {
		f.complaint = ""
		return false
	}
	news = f.complaint != err.Error()
	f.complaint = err.Error()
	return news
}

func (f *Files) examine() []os.FileInfo {
	seen := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			seen[i] = info
		}
	}
	return seen
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size()) {
			return false
		}
	}
	return true
}
