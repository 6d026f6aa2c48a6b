package main

import (
	"os"
	"syscall"
)

// syncData makes what was written durable, and none of the file's metadata that is not needed to read it.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
