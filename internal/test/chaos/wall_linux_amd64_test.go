package chaos

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The kernel maps a small library (the vDSO) into each process, which reads the clocks without a system call. stepWall
// writes code into the unused end of the library's last page, and a jump to it at the start of the function. Writing makes
// private copies of the pages, so other processes keep theirs.
const (
	clockFunction = "__vdso_clock_gettime"
	// offsetAt is the index in the code of the seconds that it adds.
	offsetAt = 13
	codeSize = 25
)

// clockCode returns code that reads a clock by a system call, and adds seconds to the wall clock.
func clockCode(seconds int64) []byte {
	code := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: which clock
		0x75, 0x0d, // jnz to the end: not CLOCK_REALTIME
		0x48, 0xb9, // mov rcx, offset
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(seconds))
	return append(code, 0x48, 0x01, 0x0e, 0xc3) // add [rsi], rcx; ret
}

// stepWall shifts the wall clock of one process by seconds. The process must not run meanwhile.
func stepWall(pid int, seconds int64) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	start, size, err := clockLibrary(pid)
	if err != nil {
		return err
	}
	image := make([]byte, size)
	if _, err := memory.ReadAt(image, start); err != nil {
		return err
	}
	function, err := find(image)
	if err != nil {
		return err
	}
	free := size - 64
	stepped := bytes.Equal(image[free:free+offsetAt], clockCode(0)[:offsetAt])
	if !stepped && len(bytes.Trim(image[free:], "\x00")) > 0 {
		return errors.New("the library of clocks has no space for code")
	}
	if _, err := memory.WriteAt(clockCode(seconds), start+free); err != nil || stepped {
		return err
	}
	jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(free-function-5))
	_, err = memory.WriteAt(jump, start+function)
	return err
}

// clockLibrary returns the address and the size of the library in a process.
func clockLibrary(pid int) (start, size int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			var end int64
			_, err := fmt.Sscanf(line, "%x-%x", &start, &end)
			return start, end - start, err
		}
	}
	return 0, 0, errors.New("the process has no library of clocks")
}

// find returns the offset of the function in the library.
func find(image []byte) (int64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == clockFunction {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the library of clocks has no " + clockFunction)
}
