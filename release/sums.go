package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sum writes the checksums of all files that were made before. `sha256sum --check` reads them.
func (w *work) sum() error {
	var lines strings.Builder
	for _, path := range w.files {
		sum, err := sha256Of(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, filepath.Base(path))
	}
	return os.WriteFile(w.add("SHA256SUMS"), []byte(lines.String()), 0o644)
}

// sha256Of returns the checksum of a file in hexadecimal digits.
func sha256Of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
