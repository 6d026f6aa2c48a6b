// Package supervise runs a command that must not outlive a lease.
//
// # What it promises
//
// On Linux the command and every process that it started are dead by the deadline of the lease, as long as the kernel
// schedules processes at all. This holds even if the process that called [Run] is stopped, hangs or is killed. The
// command first receives SIGTERM, [Terms.KillAfter] before the deadline, and SIGKILL shortly before the deadline. If
// the command ends by itself and leaves processes running, Run ends them or waits for them before it returns. So a lease
// is never released while a process may still act under it.
//
// # How it works
//
// There are two processes besides the command. The wrapper calls [Run]; it holds the lease and renews it. It starts the
// guard, a second small process that calls [Guard]. Over a socket it sends the guard what to run, and then each new
// deadline. The guard starts the command in its own process group, and ends it by its own reading of the clocks. When
// the socket is closed, the wrapper is gone, and the guard ends the command at once. Both processes are in one clock
// domain, so deadlines are sent as they are. judge.go decides when to end the command; it never reads a clock. Both
// processes use it: the guard to act, and the wrapper to send SIGKILL if the guard fails to.
//
// # Faults
//
//   - The guard is killed. The kernel then kills the command (PR_SET_PDEATHSIG; the thread that started the command lives
//     as long as the guard). The wrapper kills the rest and reports [ErrGuard]. It starts no other guard, because it
//     could not hand over the command. It does replace, once, a guard of [StartGuard] that ended before Run sent it the
//     command. If the guard is stopped, the wrapper continues it with the next deadline.
//   - Both are killed in the same moment. The command dies, and the processes that it started go on. If both are stopped,
//     the command goes on. No pattern of names or command lines hits both: the guard is called [GuardName], which has
//     nothing in common with the wrapper's name. Tools that find a process by its program file hit both.
//   - The command starts processes in other groups or sessions, such as daemons. The guard is their subreaper, so they
//     stay its descendants, and the guard ends them all.
//   - The command runs as another user (sudo, a setuid program). The guard then lacks the right to end it, and the kernel
//     drops PR_SET_PDEATHSIG. Run the wrapper itself as that user.
//
// macOS has neither subreapers nor PR_SET_PDEATHSIG. There processes that leave the command's process group are not
// ended, and a command whose guard is killed is ended by the wrapper. On other systems [Run] returns
// [errors.ErrUnsupported].
//
// # The terminal
//
// If the wrapper's process group is the terminal's foreground group, the wrapper puts the command's group into the
// foreground. So the keyboard's signals reach the command, once. When the command ends, the wrapper's group returns to
// the foreground. If the keyboard stops the command, the wrapper stops itself with its whole group, as shells expect.
// A stopped wrapper renews nothing. If the command stays stopped for longer than the lease lasts, the guard ends it: the
// guard is in its own group and is not stopped.
//
// Rule T4, which the alarm follows, is in docs/design/time-and-identity.md.
//
// The package never reads the environment or writes to the standard output, and decides nothing about leases.
package supervise
