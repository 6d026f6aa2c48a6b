//go:build !linux

package main

import "os"

// syncData makes what was written durable.
func syncData(file *os.File) error { return file.Sync() }
