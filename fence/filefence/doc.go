// Package filefence replaces files so that a holder that has been replaced cannot.
//
// # What it promises
//
// [WriteFile] replaces a file as a whole: a reader sees the old file or the new one, also after a power cut. It
// refuses a writer with [fence.ErrStale] if a newer token has reached this file, from any process of the
// machine. It does not matter where the writer was paused: once WriteFile or [Advance] has returned nil, no
// write with an older token takes effect. No writer waits for another: a writer that is paused forever delays
// no other.
//
// A crash of the process or of the machine, at any step, never leaves a file whose token is above the mark.
//
// # How it works
//
// Next to the file F there is a mark directory .F.fence. A mark is an empty file there whose name is a token;
// the highest one counts. A write
//
//  1. creates its mark, and syncs it to disk before anything else;
//  2. removes marks and unfinished writes with lower tokens, in the order of their tokens;
//  3. writes the data to a temporary file in the mark directory, named by its token, and syncs it;
//  4. is refused if there is a higher mark;
//  5. renames its temporary file to F, which fails if that file was removed meanwhile.
//
// Step 5 makes the check and the write one step. A writer that is paused between 4 and 5 finds its temporary
// file gone when it resumes, because the next holder removed it in step 2. If the temporary file did not exist
// yet when the next holder removed files, then the next holder's mark already existed, so the writer finds that
// mark in step 4. Only a third holder removes that mark, and it removed the writer's file before it, because
// step 2 removes in the order of the tokens.
//
// # What it never does
//
// It takes no lock, so it leaves none behind. It does not keep the owner and the links of the old file: the
// file is a new one, and a symbolic link is replaced, not followed. It does not guard against programs that
// write to F by other means, or that remove the mark directory: then the marks are forgotten.
//
// It is for file systems of one machine. On a network file system a machine may see an outdated directory, and
// then none of this holds. On Windows a directory cannot be flushed, so the promises about power cuts depend on
// the file system. There an open file cannot be removed either: while a paused writer has its temporary file
// open, newer writes fail with an error that says so, until that writer resumes or ends.
package filefence
