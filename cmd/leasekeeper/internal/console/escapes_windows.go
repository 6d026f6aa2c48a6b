package console

import (
	"os"

	"golang.org/x/sys/windows"
)

// obeysEscapes makes a terminal obey escape sequences, and reports whether it does.
func obeysEscapes(f *os.File) bool {
	var mode uint32
	if windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(windows.Handle(f.Fd()), mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
