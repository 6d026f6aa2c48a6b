// Package accident plays, with real processes, the accident that fencing tokens prevent.
//
// What it promises: a holder pauses past its deadline, and another process becomes the holder and writes. Then the paused
// holder continues with the write that it was about to make. Each guard below package fence refuses that write. Without the
// guard, the same write destroys what the new holder wrote. A test of the guards alone could pass because nothing dangerous
// happened.
//
// How it works: the test is the parent. It runs a server, makes a directory with files and a database, and serves the other
// resources over HTTP. The holders are processes of their own: the test binary, started again with orders in its
// environment. The first holder acquires a name, reads, checks its lease, and is stopped by SIGSTOP before it writes. The
// second one waits until the store gives it the name, reads and writes. Then the first one continues and writes without
// another check. The test sees where each process is from its reports and from the kernel, and does not wait for times.
//
// The package has nothing but tests. They need SIGSTOP, so they are not built on Windows.
//
// What it never does: it does not pause a guard. The guards' own tests do.
package accident
