package filefence_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/filefence"
)

func tempDir() (string, func()) {
	dir, err := os.MkdirTemp("", "filefence")
	if err != nil {
		panic(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

func ExampleWriteFile() {
	dir, remove := tempDir()
	defer remove()
	path := filepath.Join(dir, "report")

	fmt.Println(filefence.WriteFile(path, 33, []byte("Monday"), 0o644))
	fmt.Println(filefence.WriteFile(path, 34, []byte("Tuesday"), 0o644)) // the lease has a new holder
	err := filefence.WriteFile(path, 33, []byte("Monday again"), 0o644)  // its previous holder wakes up
	fmt.Println(errors.Is(err, fence.ErrStale))

	data, err := os.ReadFile(path)
	fmt.Println(string(data), err)
	// Output:
	// <nil>
	// <nil>
	// true
	// Tuesday <nil>
}

func ExampleAdvance() {
	dir, remove := tempDir()
	defer remove()
	path := filepath.Join(dir, "counter")
	if err := filefence.WriteFile(path, 33, []byte("1"), 0o644); err != nil {
		fmt.Println(err)
	}

	// The next holder reads before it writes. First it advances, so that nothing changes in between.
	if err := filefence.Advance(path, 34); err != nil {
		fmt.Println(err)
	}
	err := filefence.WriteFile(path, 33, []byte("2"), 0o644)
	fmt.Println(errors.Is(err, fence.ErrStale))
	data, err := os.ReadFile(path)
	fmt.Println(string(data), err)
	// Output:
	// true
	// 1 <nil>
}

func ExampleHighest() {
	dir, remove := tempDir()
	defer remove()
	path := filepath.Join(dir, "report")
	fmt.Println(filefence.Highest(path))
	if err := filefence.WriteFile(path, 33, nil, 0o644); err != nil {
		fmt.Println(err)
	}
	fmt.Println(filefence.Highest(path))
	// Output:
	// 0 <nil>
	// 33 <nil>
}
