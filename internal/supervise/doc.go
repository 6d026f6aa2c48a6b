// Package supervise runs a command that must not outlive a lease.
//
// It promises that on Linux, by the deadline of its lease, the command is dead with everything it started,
// as long as the kernel runs processes at all: also if the one who started it is stopped, hangs or was
// killed. The command first gets SIGTERM, [Terms.KillAfter] before the deadline, and SIGKILL shortly before
// it. What is left running when the command ends by itself is ended too, or waited for, before [Run] says
// that it is over; so a lease is never given back while something may still act under it.
//
// How it works: there are two processes of ours. The wrapper, in which [Run] is called, holds the lease and
// renews it. It starts the guard, a second small process in which [Guard] runs, tells it what to run, and
// then tells it each new deadline, over a socket. The guard starts the command, in a process group of its
// own, and ends it by its own reading of the clocks. When the socket ends, the wrapper is gone, and the
// command is ended at once. Deadlines go from one to the other as they are: both processes are of one clock
// domain. What to do when is decided by judge.go, which never reads a clock; both processes ask it, the
// guard to act, the wrapper as a second pair of eyes for the SIGKILL.
//
// What can go wrong, and what happens then:
//
//   - The guard is killed: the kernel kills the command with it (PR_SET_PDEATHSIG; the thread that started
//     the command lives as long as the guard does), the wrapper kills the rest and reports [ErrGuard]. It is
//     not started again, since the command could not be handed over. A guard that is stopped is continued by
//     the wrapper whenever it tells a deadline.
//   - Both are killed in the same moment: the command itself dies, what it had started stays. Both are stopped: the
//     command runs on. A pattern of names or command lines does not do that: the guard is called [GuardName], which
//     has nothing in common with the wrapper. Tools that find a program by its file do.
//   - The command starts processes in groups or sessions of their own, daemons for instance: the guard is
//     their subreaper, so none of them ever leaves its descendants, and it ends them all.
//   - The command runs as another user (sudo, a setuid program): it cannot be ended by a guard without the
//     right to, and the kernel forgets about PR_SET_PDEATHSIG. Run the wrapper itself as that user.
//
// macOS has neither subreapers nor PR_SET_PDEATHSIG: there whatever leaves the command's process group is
// not ended, and a command whose guard is killed is ended by the wrapper. On other systems [Run] returns
// [errors.ErrUnsupported].
//
// The terminal: if the wrapper's process group is the terminal's foreground group, the command's becomes it,
// so that the keyboard's signals reach the command, once; in the end it is given back. When the command is
// stopped by the keyboard, the wrapper stops itself with its whole group, as the shell expects. Nobody renews
// then: a command that stays stopped for longer than the lease lasts is ended by the guard, which is in a
// group of its own and does not stop.
//
// It never reads the environment or writes to the standard output, and decides nothing about leases.
package supervise
