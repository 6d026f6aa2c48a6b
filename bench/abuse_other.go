//go:build !linux

package main

import "errors"

// useOneCore needs Linux.
func useOneCore() error {
	return errors.New("the abuse suite holds the attacker to one core, which it can do on Linux only")
}
