package console

import "golang.org/x/sys/unix"

const readTermios, writeTermios = unix.TIOCGETA, unix.TIOCSETA
