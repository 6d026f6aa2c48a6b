// Package filefence replaces files so that no holder who has been succeeded can.
//
// # What it promises
//
// [WriteFile] replaces a file at once and as a whole: a reader sees what was there before or all of what is
// written, also after a power cut. A writer whose token is older than one that came for this file is refused
// with [fence.ErrStale], in whatever process of the machine it runs, and at whatever step it was paused: once
// WriteFile or [Advance] has returned nil, no write with an older token takes effect. Nobody waits for
// anybody: a writer that is paused for ever holds nobody up.
//
// A crash at any step, of the process or of the machine, never leaves a file that was written with a newer
// token than the mark remembers.
//
// # How it works
//
// Beside the file F lies a folder .F.fence. A mark is an empty file there whose name is a token; what counts
// is the highest. A write
//
//  1. creates its mark, and has it on disk before anything else happens;
//  2. removes what has a lower token, marks and unfinished writes, in the order of their tokens;
//  3. writes the data to a file of its own in that folder, named by its token, and has that on disk;
//  4. is refused if there is a higher mark;
//  5. renames its own file to F, which fails if that file was removed meanwhile.
//
// Step 5 is what makes the check and the write one: a writer that is paused between 4 and 5 finds its file
// gone when it goes on, because its successor took it away in step 2. If its file was not there yet when the
// successor looked, then the successor's mark was, so the writer finds that in step 4. And if that mark is
// removed just while the writer looks, then by a third, who removed the writer's file before: hence the order
// in step 2.
//
// # What it never does
//
// It does not lock, so it leaves no lock behind. It does not keep the old file's owner and links: the file is
// a new one, and a symbolic link is replaced, not followed. It does not guard against those who write to F by
// other means, or remove the folder beside it: then the marks are forgotten.
//
// It is for file systems of one machine. On network file systems a machine may see the folder as it was some
// time ago, and then none of this holds. On Windows a directory cannot be flushed, so what is said about
// power cuts rests on the file system there; and a file that is open cannot be removed, so a writer that is
// paused just while it writes its data makes newer ones fail, with an error that says so, until it goes on or
// ends.
package filefence
