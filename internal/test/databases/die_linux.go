package databases

import "syscall"

// dieWithParent has the kernel kill the process when the thread ends that started it.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
