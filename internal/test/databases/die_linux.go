package databases

import "syscall"

// dieWithParent makes the kernel kill the process when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
