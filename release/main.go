package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// run makes a release as the arguments say, and prints what it has made.
func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	out := flags.String("out", "", "`directory` for the files; it must be empty or absent")
	version := flags.String("version", "", "`version` such as v0.1.0 (default: the tag of the commit)")
	only := flags.String("targets", "", "comma-separated `list` of systems such as linux/amd64 (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() > 0 {
		return fmt.Errorf("say where to write the files: --out DIRECTORY")
	}
	targets, err := chooseTargets(*only)
	if err != nil {
		return err
	}
	checkout, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	from, err := readSource(checkout, *version)
	if err != nil {
		return err
	}
	if *out, err = filepath.Abs(*out); err != nil {
		return err
	}
	made, err := build(from, targets, *out)
	if err != nil {
		return err
	}
	return list(os.Stdout, made.files)
}

// chooseTargets returns the systems of a comma-separated list, or all of them if the list is empty.
func chooseTargets(only string) ([]target, error) {
	if only == "" {
		return allTargets, nil
	}
	var chosen []target
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(allTargets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("%q is not among the systems %v", name, allTargets)
		}
		chosen = append(chosen, allTargets[i])
	}
	return chosen, nil
}

// list prints each file with its size in bytes.
func list(to io.Writer, files []string) error {
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(to, "%10d  %s\n", info.Size(), filepath.Base(path)); err != nil {
			return err
		}
	}
	return nil
}
