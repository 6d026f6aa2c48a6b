package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/leasekeeper/leasekeeper/internal/test/ferrettest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: serve folder")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func serve(folder string, in io.Reader, out io.Writer) error {
	proxy, stop, err := ferrettest.Serve(folder)
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintln(out, proxy.URI()); err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return errors.Join(err, stop())
}
