//go:build unix && !linux

package databases

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
